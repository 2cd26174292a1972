// The order of requests for a look at the devices.
#include "daemon/host/driver/reconciler.h"

#include <gtest/gtest.h>

namespace gpumem::host {
namespace {

using std::chrono::milliseconds;

struct LookQueueTest : testing::Test {
  Result<void> ask(std::uint32_t uid, bool admin = false) {
    return queue.add(
        {uid, admin}, [](core::Broker&, core::TimePoint) {}, now);
  }
  LookQueue queue;
  LookQueue::Clock::time_point now{std::chrono::hours(1)};
};

TEST_F(LookQueueTest, GivesTheFirstItsTurnAtOnce) {
  EXPECT_FALSE(queue.next());
  EXPECT_TRUE(ask(1));
  EXPECT_EQ(queue.next(), now);
  EXPECT_EQ(queue.take_due(now).size(), 1U);
  EXPECT_FALSE(queue.next());
}

TEST_F(LookQueueTest, GivesAUserOneTurnASecondForAllThatIsAskedUntilThen) {
  EXPECT_TRUE(ask(1));
  EXPECT_EQ(queue.take_due(now).size(), 1U);
  const auto first = now;
  for (int i = 0; i < 3; ++i) {
    now += milliseconds(100);
    EXPECT_TRUE(ask(1));
    EXPECT_TRUE(queue.take_due(now).empty());
  }
  EXPECT_EQ(queue.next(), first + LookQueue::kPause);
  EXPECT_EQ(queue.take_due(first + LookQueue::kPause).size(), 3U);
}

TEST_F(LookQueueTest, MakesNobodyWaitForAnother) {
  EXPECT_TRUE(ask(1));
  queue.take_due(now);
  EXPECT_TRUE(ask(1));
  EXPECT_TRUE(ask(2));
  EXPECT_EQ(queue.take_due(now).size(), 1U);
}

TEST_F(LookQueueTest, DoesNotMakeAdministratorsWait) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(ask(0, true));
    EXPECT_EQ(queue.take_due(now).size(), 1U);
  }
}

TEST_F(LookQueueTest, RefusesMoreThanAUserMayHaveWaiting) {
  for (std::size_t i = 0; i < LookQueue::kMostOfAUser; ++i) EXPECT_TRUE(ask(1));
  const auto refused = ask(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_TRUE(ask(2));
}

TEST_F(LookQueueTest, RefusesMoreThanMayWaitInAll) {
  std::uint32_t uid = 1;
  for (std::size_t i = 0; i < LookQueue::kMost; ++i) EXPECT_TRUE(ask(uid++));
  EXPECT_FALSE(ask(uid));
  EXPECT_EQ(queue.take_due(now).size(), LookQueue::kMost);
  EXPECT_TRUE(ask(uid));
}

}  // namespace
}  // namespace gpumem::host
