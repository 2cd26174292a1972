#include <gtest/gtest.h>

#include <memory>

#include "daemon/core/memory/job.h"

namespace gpumem::core {
namespace {

using Turn = Job::Turn;

TEST(JobQueue, DoesFirstWhatARequestWaitsForThenTheStockThenAllElse) {
  JobQueue<int> queue;
  EXPECT_TRUE(queue.empty());
  queue.push(Turn::kInOrder, 5);
  queue.push(Turn::kSoon, 3);
  queue.push(Turn::kInOrder, 6);
  queue.push(Turn::kNow, 1);
  queue.push(Turn::kSoon, 4);
  queue.push(Turn::kNow, 2);
  EXPECT_EQ(queue.size(), 6u);
  for (int expected = 1; expected <= 6; ++expected) EXPECT_EQ(queue.pop(), expected);
  EXPECT_TRUE(queue.empty());
}

TEST(JobQueue, HurriesWhatIsOfTheStockAndHasNotBegun) {
  JobQueue<int> queue;
  const auto hurry = [&](int which) { queue.hurry([which](int one) { return one == which; }); };
  queue.push(Turn::kSoon, 3);
  queue.push(Turn::kSoon, 2);
  queue.push(Turn::kInOrder, 4);
  queue.push(Turn::kNow, 1);
  hurry(2);
  hurry(4);
  hurry(5);
  for (int expected = 1; expected <= 4; ++expected) EXPECT_EQ(queue.pop(), expected);
}

TEST(JobQueue, ShowsAndForgetsAllOfThem) {
  JobQueue<std::unique_ptr<int>> queue;
  for (const Turn turn : {Turn::kNow, Turn::kSoon, Turn::kInOrder})
    queue.push(turn, std::make_unique<int>(1));
  int sum = 0;
  queue.for_each([&](const std::unique_ptr<int>& one) { sum += *one; });
  EXPECT_EQ(sum, 3);
  queue.clear();
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace gpumem::core
