#include "client/shim/memory/session/settings.h"

#include <gtest/gtest.h>

#include "client/process/messages.h"

namespace gpumem::shim::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kWait{5'000};
const WaitPolicy::Clock::time_point kNow{std::chrono::hours(1)};

TEST(WaitPolicyTest, CascadeOfSmallerRequestsWaitsOnce) {
  WaitPolicy policy(kWait);
  EXPECT_EQ(policy.wait_for(gibibytes(10), kNow), kWait);
  policy.timed_out(gibibytes(10), kNow);
  EXPECT_EQ(policy.wait_for(gibibytes(9), kNow), milliseconds(0));
  EXPECT_EQ(policy.wait_for(gibibytes(8), kNow + seconds(9)), milliseconds(0));
  EXPECT_EQ(policy.wait_for(gibibytes(10), kNow + seconds(9)), milliseconds(0)) << "the same again";
}

TEST(WaitPolicyTest, LaterAndLargerRequestsWaitAgain) {
  WaitPolicy policy(kWait);
  policy.timed_out(gibibytes(4), kNow);
  EXPECT_EQ(policy.wait_for(gibibytes(5), kNow), kWait);
  EXPECT_EQ(policy.wait_for(gibibytes(4), kNow + WaitPolicy::kCascade), kWait);
}

GrowError denied(Denial::Reason reason, Bytes limiting_limit = {}) {
  Denial why;
  why.reason = reason;
  why.limiting_limit = limiting_limit;
  return {{Code::kResourceExhausted, "no"}, why};
}

TEST(WaitPolicyTest, WaitingHelpsWhereOthersHoldTheMemory) {
  EXPECT_TRUE(may_come_true(denied(Denial::Reason::kNoMemory), gibibytes(1), gibibytes(8)));
  EXPECT_TRUE(may_come_true(denied(Denial::Reason::kTurn), gibibytes(1), gibibytes(8)));
  const auto tenant = denied(Denial::Reason::kTenantLimit, gibibytes(9));
  EXPECT_TRUE(may_come_true(tenant, gibibytes(1), gibibytes(8)))
      << "another process of the tenant has the rest";
}

TEST(WaitPolicyTest, WaitingDoesNotHelpWhereTheProcessItselfHoldsIt) {
  EXPECT_FALSE(may_come_true(denied(Denial::Reason::kSliceLimit), gibibytes(1), gibibytes(8)));
  EXPECT_FALSE(may_come_true(denied(Denial::Reason::kPoolSize), gibibytes(1), {}));
  EXPECT_FALSE(may_come_true(denied(Denial::Reason::kTenantLimit, gibibytes(8)), gibibytes(1), gibibytes(8)));
}

TEST(WaitPolicyTest, WaitingHelpsWhereAnotherBrokerMayCome) {
  EXPECT_TRUE(may_come_true(GrowError({Code::kUnavailable, "gone"}), gibibytes(1), {}));
  EXPECT_FALSE(may_come_true(GrowError({Code::kInvalidArgument, "no"}), gibibytes(1), {}));
}

TEST(WaitPolicyTest, ABrokerThatIsAwayIsAskedAgainUntilTheEnd) {
  int asked = 0;
  const auto away = [&]() -> Result<int> {
    if (++asked == 3) return asked;
    return Error{Code::kUnavailable, "gone"};
  };
  const auto later = WaitPolicy::Clock::now() + std::chrono::minutes(10);
  EXPECT_EQ(*ask_while_away(later, away), 3);
  asked = 3;
  EXPECT_EQ(ask_while_away(WaitPolicy::Clock::now(), away).error().code, Code::kUnavailable);
  EXPECT_EQ(asked, 4) << "once";
  const auto refuses = [&]() -> Result<int> {
    ++asked;
    return Error{Code::kResourceExhausted, "no"};
  };
  EXPECT_EQ(ask_while_away(later, refuses).error().code, Code::kResourceExhausted);
  EXPECT_EQ(asked, 5) << "there is a broker";
}

// A broker that refuses for long is not flooded.
TEST(WaitPolicyTest, BrokerThatStaysAwayIsAskedLessAndLessOften) {
  int asked = 0;
  const auto away = [&]() -> Result<int> {
    ++asked;
    return Error{Code::kUnavailable, "gone"};
  };
  const auto end = WaitPolicy::Clock::now() + std::chrono::milliseconds(200);
  EXPECT_EQ(ask_while_away(end, away).error().code, Code::kUnavailable);
  EXPECT_LE(asked, 6);
}

TEST(WaitPolicyTest, WaitSaysWhyTheBrokerIsAway) {
  const std::string text = wait_for_broker_text({Code::kUnavailable, "its disk is full"}, seconds(10));
  EXPECT_EQ(text, "waiting for the broker, at most 10s: its disk is full");
}

TEST(RefusalMessagesTest, AreToldOnceInAWhile) {
  client::RefusalMessages messages;
  EXPECT_TRUE(messages.tell("one", kNow));
  EXPECT_FALSE(messages.tell("two", kNow + seconds(1)));
  testing::internal::CaptureStderr();
  EXPECT_TRUE(messages.tell("three", kNow + client::RefusalMessages::kPause));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "gpumem: three (1 more refusals since the last such line)\n");
}

}  // namespace
}  // namespace gpumem::shim::test
