#include "daemon/host/system/deadline_timer.h"

#include <gtest/gtest.h>

namespace gpumem::host {
namespace {

struct DeadlineTimerTest : testing::Test {
  void run() {
    loop.restart();
    loop.run();  // returns when nothing is awaited any more
  }
  boost::asio::io_context loop;
  int expired = 0;
  DeadlineTimer timer{loop, [this] { ++expired; }};
  const core::TimePoint past = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  const core::TimePoint future = std::chrono::steady_clock::now() + std::chrono::hours(1);
};

TEST_F(DeadlineTimerTest, ExpiresOnce) {
  timer.arm(past);
  timer.arm(past);
  run();
  EXPECT_EQ(expired, 1);
}

TEST_F(DeadlineTimerTest, ExpiresAtADeadlineThatWasDroppedAndComesBack) {
  timer.arm(past);
  timer.arm(std::nullopt);
  timer.arm(past);
  run();
  EXPECT_EQ(expired, 1);
}

TEST_F(DeadlineTimerTest, ExpiresAgainAtTheSameDeadline) {
  timer.arm(past);
  run();
  timer.arm(past);
  run();
  EXPECT_EQ(expired, 2);
}

TEST_F(DeadlineTimerTest, DoesNotExpireForADeadlineThatWasMovedAfterItHadPassed) {
  timer.arm(past);
  loop.poll_one();  // the handler may be queued by now
  const int before = expired;
  timer.arm(past + std::chrono::milliseconds(1));
  timer.arm(future);
  timer.arm(std::nullopt);
  run();
  EXPECT_EQ(expired, before);
}

}  // namespace
}  // namespace gpumem::host
