// The kernel's barriers, without which there are no thread caches: registered once in a process, without a
// wait.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <functional>
#include <thread>

#include "client/allocator/thread_cache.h"

namespace gpumem::allocator {
namespace {

/// Whether `body` answers true in a child of this process, which has one thread.
bool holds_in_a_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Barriers, AreThereAtOnceInAProcessWithOneThread) {
  EXPECT_TRUE(holds_in_a_child([] {
    ThreadCache::prepare();
    return ThreadCache::can_be_stopped();
  }));
}

TEST(Barriers, ComeByThemselvesInAProcessWithSeveral) {
  EXPECT_TRUE(holds_in_a_child([] {
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
  EXPECT_TRUE(holds_in_a_child([] {
    std::barrier both(2);
    std::thread other([&] { both.arrive_and_wait(); });
    ThreadCache::prepare();
    const bool came = holds_in_a_child([] { return ThreadCache::can_be_stopped(); });
    both.arrive_and_wait();
    other.join();
    return came;
  }));
}

}  // namespace
}  // namespace gpumem::allocator
