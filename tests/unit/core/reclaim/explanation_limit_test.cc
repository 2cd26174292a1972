#include "daemon/core/broker/explanation_limit.h"

#include <gtest/gtest.h>

namespace gpumem::core {
namespace {

constexpr TimePoint kFirst{std::chrono::hours(1)};

TEST(ExplanationLimit, RefusesAUserBeyondItsShareAlone) {
  ExplanationLimit limit;
  for (std::size_t i = 0; i < ExplanationLimit::kMostOfAUser; ++i) EXPECT_TRUE(limit.add(1, kFirst));
  const auto refused = limit.add(1, kFirst);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_NE(refused.error().message.find("ask again later"), std::string::npos);
  EXPECT_TRUE(limit.add(2, kFirst));
}

TEST(ExplanationLimit, GivesANewShareEverySecond) {
  ExplanationLimit limit;
  while (limit.add(1, kFirst)) {
  }
  EXPECT_FALSE(limit.add(1, kFirst + ExplanationLimit::kWindow - std::chrono::nanoseconds(1)));
  EXPECT_TRUE(limit.add(1, kFirst + ExplanationLimit::kWindow));
}

}  // namespace
}  // namespace gpumem::core
