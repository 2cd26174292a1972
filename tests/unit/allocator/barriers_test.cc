// The kernel's barriers, without which there are no thread caches: registered once in a process, without a
// wait.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "client/allocator/thread_cache.h"
#include "tests/support/in_child.h"

namespace gpumem::allocator {
namespace {

using gpumem::test::in_child;

TEST(Barriers, AreThereAtOnceInAProcessWithOneThread) {
  EXPECT_TRUE(in_child([] {
    ThreadCache::prepare();
    return ThreadCache::can_be_stopped();
  }));
}

TEST(Barriers, ComeByThemselvesInAProcessWithSeveral) {
  EXPECT_TRUE(in_child([] {
    std::barrier both(2);
    std::thread other([&] { both.arrive_and_wait(); });
    ThreadCache::prepare();
    while (!ThreadCache::can_be_stopped()) std::this_thread::yield();  // or the test's own time is over
    both.arrive_and_wait();
    other.join();
    return true;
  }));
}

// The thread that waits for the kernel is not in the child.
TEST(Barriers, ComeInAChildThatWasForkedMeanwhile) {
  EXPECT_TRUE(in_child([] {
    std::barrier both(2);
    std::thread other([&] { both.arrive_and_wait(); });
    ThreadCache::prepare();
    const bool came = in_child([] { return ThreadCache::can_be_stopped(); });
    both.arrive_and_wait();
    other.join();
    return came;
  }));
}

}  // namespace
}  // namespace gpumem::allocator
