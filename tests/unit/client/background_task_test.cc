#include "client/process/background_task.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/system/unique_fd.h"
#include "tests/support/eventually.h"
#include "tests/support/in_child.h"

namespace gpumem::client {
namespace {

using gpumem::test::eventually;
using std::chrono::milliseconds;

/// The process's threads that bear the library's name.
int library_threads() {
  int count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name == "gpumem") ++count;
  }
  return count;
}

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe(ends), 0);
    const NoFork no_fork;
    read = OwnFd(no_fork, UniqueFd(ends[0]));
    write.reset(ends[1]);
  }
  void ring() const { EXPECT_EQ(::write(write.get(), "!", 1), 1); }
  bool is_rung() const {
    char byte = 0;
    return ::read(read.get(), &byte, 1) == 1;
  }
  OwnFd read;
  UniqueFd write;
};

constexpr BackgroundTask::When kSoon{.period = milliseconds(1)};

TEST(BackgroundTask, IsDoneAfterEachPeriod) {
  std::atomic<int> times{0}, others{0};
  BackgroundTask task(kSoon, [&] { return ++times, true; });
  EXPECT_EQ(times, 0) << "it has not begun";
  ASSERT_TRUE(task.begin().has_value());
  EXPECT_TRUE(eventually([&] { return times > 5; }));
  BackgroundTask other(kSoon, [&] { return ++others, true; });
  ASSERT_TRUE(other.begin().has_value());
  task.end();
  const int done = times, others_done = others;
  EXPECT_TRUE(eventually([&] { return others > others_done + 5; })) << "periods in which it would be done";
  EXPECT_EQ(times, done);
}

TEST(BackgroundTask, IsDoneWhenItsDescriptorCanBeRead) {
  const Pipe pipe;
  std::atomic<int> times{0};
  BackgroundTask task({.readable = &pipe.read}, [&] { return pipe.is_rung() && ++times != 0; });
  ASSERT_TRUE(task.begin().has_value());
  for (int i = 1; i <= 3; ++i) {
    pipe.ring();
    EXPECT_TRUE(eventually([&] { return times == i; }));
  }
}

TEST(BackgroundTask, ThatHasNoMoreUseOfItsDescriptorIsNotDoneForIt) {
  Pipe pipe;
  std::atomic<int> times{0};
  BackgroundTask task({.readable = &pipe.read}, [&] { return ++times, false; });
  ASSERT_TRUE(task.begin().has_value());
  pipe.write.reset();  // can be read from now on, for ever
  EXPECT_TRUE(eventually([&] { return times == 1; }));
  EXPECT_TRUE(eventually([] { return library_threads() == 0; })) << "no thread for nothing";
  ASSERT_TRUE(task.begin().has_value());
  EXPECT_EQ(library_threads(), 0);
  EXPECT_EQ(times, 1);
}

TEST(BackgroundTask, AllAreDoneByOneThreadThatGoesWithTheLast) {
  std::mutex mutex;
  std::set<std::thread::id> workers;
  std::atomic<int> times{0};
  const auto work = [&] {
    const std::scoped_lock lock(mutex);
    workers.insert(std::this_thread::get_id());
    return ++times, true;
  };
  {
    std::deque<BackgroundTask> tasks;
    EXPECT_EQ(library_threads(), 0) << "none until a task begins";
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(tasks.emplace_back(kSoon, work).begin().has_value());
    EXPECT_TRUE(eventually([&] { return times > 100; }));
    EXPECT_EQ(library_threads(), 1);
    EXPECT_EQ(workers.size(), 1U);
  }
  EXPECT_EQ(library_threads(), 0);
}

TEST(BackgroundTask, BegunTwiceIsOne) {
  BackgroundTask task(kSoon, [] { return true; });
  ASSERT_TRUE(task.begin().has_value());
  ASSERT_TRUE(task.begin().has_value());
  task.end();
  task.end();
  EXPECT_EQ(library_threads(), 0);
}

TEST(BackgroundTask, EndWaitsForItsWork) {
  std::promise<void> begun;
  std::atomic<bool> ending{false}, ended{false};
  BackgroundTask task(kSoon, [&] {
    if (ended) return true;
    begun.set_value();
    while (!ending) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // time for an end() that does not wait
    return ended = true;
  });
  ASSERT_TRUE(task.begin().has_value());
  begun.get_future().wait();
  ending = true;
  task.end();
  EXPECT_TRUE(ended);
}

TEST(BackgroundTask, EndDoesNotWaitForAnothersWork) {
  std::promise<void> begun, may_end;
  std::optional<BackgroundTask> busy(std::in_place, kSoon, [&, once = false]() mutable {
    if (std::exchange(once, true)) return true;
    begun.set_value();
    may_end.get_future().wait();
    return true;
  });
  BackgroundTask other(kSoon, [] { return true; });
  ASSERT_TRUE(busy->begin().has_value());
  ASSERT_TRUE(other.begin().has_value());
  begun.get_future().wait();
  other.end();
  may_end.set_value();
  busy.reset();
  EXPECT_EQ(library_threads(), 0);
}

TEST(BackgroundTask, WorkMayDestroyItsOwnTaskAndOthers) {
  for (const bool first : {false, true}) {
    std::optional<BackgroundTask> own, other;
    std::atomic<bool> was_caller{false}, gone{false};
    own.emplace(kSoon, [&] {
      const bool caller = own->is_caller() && !other->is_caller();
      if (first) other.reset();
      own.reset();
      if (!first) other.reset();
      was_caller = caller;
      return gone = true;
    });
    other.emplace(kSoon, [] { return true; });
    ASSERT_TRUE(other->begin().has_value());
    ASSERT_TRUE(own->begin().has_value());
    EXPECT_TRUE(eventually([&] { return gone.load(); }));
    EXPECT_TRUE(was_caller);
    EXPECT_TRUE(eventually([] { return library_threads() == 0; }));
    BackgroundTask later(kSoon, [] { return true; });
    ASSERT_TRUE(later.begin().has_value()) << "there is a thread again";
    EXPECT_TRUE(eventually([] { return library_threads() == 1; }));
  }
}

TEST(BackgroundTask, OfAForkedChildHasAThreadOfItsOwn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own allocator may be locked in a child forked from several threads";
#endif
  BackgroundTask of_the_parent(kSoon, [] { return true; });
  ASSERT_TRUE(of_the_parent.begin().has_value());
  EXPECT_TRUE(gpumem::test::in_child([] {
    std::atomic<int> times{0};
    BackgroundTask own(kSoon, [&] { return ++times, true; });
    const bool done = own.begin().has_value() && eventually([&] { return times > 2; });
    own.end();
    return done;
  }));
}

/// Each overlap is followed by silence, in which nothing wakes a thread that has missed its end.
TEST(BackgroundTask, LastMayEndWhileTheNextBegins) {
  constexpr int kRounds = 600;
  const Pipe pipe;
  const BackgroundTask::When never{.readable = &pipe.read};
  std::optional<BackgroundTask> last, next;
  std::atomic<int> go{0}, ended{0};
  const std::jthread other([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (go < round) continue;  // at once: a thread that has slept comes too late
      last->end();
      ended = round;
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    last.emplace(never, [] { return true; });
    next.emplace(never, [] { return true; });
    ASSERT_TRUE(last->begin().has_value());
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    go = round;
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(round % 40);
    while (std::chrono::steady_clock::now() < until) continue;
    ASSERT_TRUE(next->begin().has_value());
    if (!eventually([&] { return ended == round; })) {
      std::fprintf(stderr, "round %d: the end of the last task does not return\n", round);
      std::_Exit(1);
    }
    next.reset();
  }
}

/// Threads that begin and end tasks at once, some of which end themselves.
TEST(BackgroundTask, ManyThreadsMayBeginAndEndThem) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 100; ++round) {
        std::atomic<int> times{0};
        std::optional<BackgroundTask> task;
        std::atomic<bool> gone{false};
        const bool ends_itself = (round + i) % 3 == 0;
        task.emplace(kSoon, [&] {
          ++times;
          if (!ends_itself) return true;
          task.reset();
          return gone = true;
        });
        if (!task->begin().has_value()) return ADD_FAILURE() << "no thread";
        if (ends_itself) {
          EXPECT_TRUE(eventually([&] { return gone.load(); }));
        } else if (round % 2 == 0) {
          EXPECT_TRUE(eventually([&] { return times > 0; }));
        }
      }
    });
  }
  threads.clear();
  EXPECT_TRUE(eventually([] { return library_threads() == 0; }));
}

}  // namespace
}  // namespace gpumem::client
