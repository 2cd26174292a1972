#pragma once
#include <gtest/gtest.h>

#include <optional>

#include "gpumem/session.h"
#include "tests/unit/client/fake_broker.h"

namespace gpumem::client::test {

inline constexpr Bytes kPage = mebibytes(2);

/// A session with a broker that the test plays.
class SliceTest : public testing::Test {
 protected:
  SliceTest() {
    auto session = Session::connect({broker_.folder(), "test", std::chrono::seconds(20)});
    EXPECT_TRUE(session) << to_string(session.error());
    session_.emplace(std::move(*session));
  }
  Slice open(const SliceOptions& options = {}) {
    auto slice = session_->open_slice(options);
    EXPECT_TRUE(slice) << to_string(slice.error());
    return std::move(*slice);
  }
  /// UUID of a device of the simulated machine.
  std::string device(std::size_t ordinal) const { return session_->usage()->at(1 + ordinal).device; }

  FakeBroker broker_;
  std::optional<Session> session_;
};

/// Simulated device memory is host memory: writes to the whole of it and reads it back.
inline bool is_usable(const Slice& slice) {
  for (std::uint64_t at = 0; at < slice.committed().count; at += kPage.count) {
    auto* word = reinterpret_cast<volatile std::uint64_t*>(slice.base() + at);
    *word = at + 1;
  }
  for (std::uint64_t at = 0; at < slice.committed().count; at += kPage.count) {
    if (*reinterpret_cast<volatile std::uint64_t*>(slice.base() + at) != at + 1) return false;
  }
  return true;
}

}  // namespace gpumem::client::test
