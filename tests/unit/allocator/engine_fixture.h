#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/allocator/engine.h"
#include "tests/support/allocator/fake_backing.h"
#include "tests/support/allocator/fake_streams.h"

namespace gpumem::allocator::test {

using gpumem::test::FakeBacking;
using gpumem::test::FakeBackingOptions;
using gpumem::test::FakeStreams;
using std::chrono::milliseconds;

inline StreamHandle stream(std::uint64_t number) { return reinterpret_cast<StreamHandle>(0x1000 * number); }
inline constexpr Bytes kAll = kUnknownSize;  ///< for Engine::trim
inline const StreamHandle kOne = stream(1), kTwo = stream(2), kThree = stream(3);

template <class T, class E>
testing::AssertionResult failed_with(const Result<T, E>& result, Code code) {
  if (result) return testing::AssertionFailure() << "it succeeded";
  if (result.error().code == code) return testing::AssertionSuccess();
  return testing::AssertionFailure() << to_string(result.error());
}
template <class T, class E>
testing::AssertionResult succeeded(const Result<T, E>& result) {
  if (result) return testing::AssertionSuccess();
  return testing::AssertionFailure() << to_string(result.error());
}

/// An engine over fakes, without a background thread: the test controls the time.
class EngineTest : public testing::Test {
 protected:
  explicit EngineTest(const FakeBackingOptions& memory = {},
                      const EngineOptions& options = {.background_task = false})
      : backing_(memory), options_(options) {
    engine_ = std::make_unique<Engine>(borrow(backing_), borrow(streams_), options_);
  }
  /// Every test must leave the engine empty.
  void TearDown() override {
    engine_.reset();
    EXPECT_EQ(backing_.committed(), Bytes{});
    EXPECT_EQ(backing_.extents(), 0U);
    EXPECT_EQ(streams_.marks(), 0U);
  }

  Address allocate(Bytes bytes, StreamHandle on = kOne, const Placement& placement = {}) {
    auto got = engine_->allocate(bytes, on, placement);
    EXPECT_TRUE(succeeded(got)) << to_string(bytes);
    return got ? *got : 0;
  }
  void free(Address at, Bytes bytes, StreamHandle on = kOne) {
    EXPECT_TRUE(succeeded(engine_->deallocate(at, bytes, on))) << to_string(bytes);
  }
  std::vector<Address> allocate_many(std::size_t count, Bytes bytes, StreamHandle on = kOne) {
    std::vector<Address> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(allocate(bytes, on));
    return all;
  }
  void free_all(const std::vector<Address>& all, Bytes bytes, StreamHandle on = kOne) {
    for (const Address at : all) free(at, bytes, on);
  }
  AllocatorStatistics statistics() const { return engine_->statistics().value(); }
  std::vector<BlockInfo> snapshot() const { return engine_->snapshot().value(); }
  /// Runs the background work for so much time, in tenths of a second.
  void pass(milliseconds time) {
    for (milliseconds gone{0}; gone < time; gone += milliseconds(100)) {
      now_ += milliseconds(100);
      engine_->background_tick(now_);
    }
  }

  FakeBacking backing_;
  FakeStreams streams_;
  EngineOptions options_;
  std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::now();
  std::unique_ptr<Engine> engine_;
};

}  // namespace gpumem::allocator::test
