#include "daemon/rpc/server.h"

#include <gtest/gtest.h>

namespace gpumem::rpc {
namespace {

using std::chrono::milliseconds;
constexpr LineLimit::Clock::time_point kStart{std::chrono::hours(1)};

TEST(LineLimit, AdmitsSoManyASecondAndCountsTheOthers) {
  LineLimit limit;
  for (std::size_t i = 0; i < LineLimit::kPerSecond; ++i) EXPECT_EQ(limit.admit(kStart), 0U);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(limit.admit(kStart + milliseconds(999)), std::nullopt);
  EXPECT_EQ(limit.admit(kStart + milliseconds(1000)), 7U);
  EXPECT_EQ(limit.admit(kStart + milliseconds(1001)), 0U);
}

TEST(LineLimit, QuietSecondsSaveNothingUp) {
  LineLimit limit;
  EXPECT_EQ(limit.admit(kStart), 0U);
  std::size_t admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += limit.admit(kStart + milliseconds(10'000)) ? 1 : 0;
  EXPECT_EQ(admitted, LineLimit::kPerSecond);
}

}  // namespace
}  // namespace gpumem::rpc
