// Handles that are used too late: after closing, in a forked child, while 64 threads are at work.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <functional>
#include <thread>

#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

using Calls = std::map<std::string, std::function<gpumem_status()>>;

bool no_usage(const gpumem_usage*, void*) { return true; }
bool no_size_class(const gpumem_size_class*, void*) { return true; }
bool no_block(const gpumem_block*, void*) { return true; }

class CMisuse : public CAbiTest {
 protected:
  CMisuse() {
    EXPECT_TRUE(ok(gpumem_slice_grow(slice_, mebibytes(4).count, nullptr, nullptr)));
    EXPECT_TRUE(ok(gpumem_allocate(allocator_, 4096, nullptr, &block_)));
    EXPECT_TRUE(ok(gpumem_allocate(allocator_, 40 << 20, nullptr, &large_)));
  }

  /// Every call that takes a handle, closing aside.
  Calls calls() {
    return {
        {"ping", [&] { return gpumem_session_ping(session_); }},
        {"usage", [&] { return gpumem_session_usage(session_, no_usage, nullptr); }},
        {"charge", [&] { return gpumem_session_charge(session_, "GPU", 0); }},
        {"on_pressure", [&] { return gpumem_session_on_pressure(session_, nullptr, nullptr); }},
        {"slice_open", [&] { return gpumem_slice_open(session_, nullptr, &other_slice_); }},
        {"grow", [&] { return gpumem_slice_grow(slice_, 1, nullptr, nullptr); }},
        {"shrink", [&] { return gpumem_slice_shrink(slice_, 1, nullptr); }},
        {"release", [&] { return gpumem_slice_release(slice_, 1, 0, nullptr); }},
        {"set_in_use", [&] { return gpumem_slice_set_in_use(slice_, 1, nullptr); }},
        {"allocator_open", [&] { return gpumem_allocator_open(session_, nullptr, &other_allocator_); }},
        {"allocate", [&] { return gpumem_allocate(allocator_, 4096, nullptr, &address_); }},
        {"allocate_large", [&] { return gpumem_allocate(allocator_, 40 << 20, nullptr, &address_); }},
        {"allocate_placed",
         [&] { return gpumem_allocate_placed(allocator_, 1, nullptr, nullptr, &address_); }},
        {"deallocate", [&] { return gpumem_deallocate(allocator_, block_, 4096, nullptr); }},
        {"deallocate_large", [&] { return gpumem_deallocate(allocator_, large_, 40 << 20, nullptr); }},
        {"extend", [&] { return gpumem_extend(allocator_, large_, 40 << 20, 41 << 20, nullptr); }},
        {"record_stream", [&] { return gpumem_record_stream(allocator_, block_, nullptr); }},
        {"release_stream", [&] { return gpumem_release_stream(allocator_, nullptr); }},
        {"tag", [&] { return gpumem_tag(allocator_, "name", &tag_); }},
        {"trim", [&] { return gpumem_allocator_trim(allocator_, 1, nullptr); }},
        {"statistics", [&] { return gpumem_allocator_statistics(allocator_, &statistics_); }},
        {"reset_peaks", [&] { return gpumem_allocator_reset_peaks(allocator_); }},
        {"size_classes", [&] { return gpumem_allocator_size_classes(allocator_, no_size_class, nullptr); }},
        {"snapshot", [&] { return gpumem_allocator_snapshot(allocator_, no_block, nullptr); }}};
  }
  Calls closing_calls() {
    return {{"session_close", [&] { return gpumem_session_close(session_); }},
            {"slice_close", [&] { return gpumem_slice_close(slice_); }},
            {"allocator_destroy", [&] { return gpumem_allocator_destroy(allocator_); }},
            {"allocator_close", [&] { return gpumem_allocator_close(allocator_); }}};
  }

  gpumem_slice* slice_ = open_slice();
  gpumem_allocator* allocator_ = open_allocator();
  gpumem_address block_ = 0;
  gpumem_address large_ = 0;

 private:
  gpumem_slice* other_slice_ = nullptr;
  gpumem_allocator* other_allocator_ = nullptr;
  gpumem_address address_ = 0;
  std::uint8_t tag_ = 0;
  gpumem_statistics statistics_ = GPUMEM_STATISTICS_INIT;
};

TEST_F(CMisuse, EveryCallAfterClosingIsAnError) {
  EXPECT_TRUE(ok(gpumem_allocator_destroy(allocator_)));
  EXPECT_TRUE(ok(gpumem_slice_close(slice_)));
  EXPECT_TRUE(ok(gpumem_session_close(session_)));
  Calls all = calls();
  all.merge(closing_calls());
  for (const auto& [name, call] : all) EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, call())) << name;
  EXPECT_NE(gpumem_session_id(session_), 0U);
  EXPECT_NE(gpumem_slice_base(slice_), 0U);
  EXPECT_EQ(gpumem_allocator_limit(allocator_), kPool.count);
}

// The child ends without destructors, as one does that calls exec; its status names the first call that was
// wrong.
TEST_F(CMisuse, EveryCallInAForkedChildIsAnErrorAndTheParentGoesOn) {
  *memory_at(block_) = 9;
  Calls all = calls();
  all.merge(closing_calls());
  const pid_t child = ::fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    int number = 1;
    for (const auto& [name, call] : all) {
      if (call() != GPUMEM_FAILED_PRECONDITION || std::string(gpumem_last_error()).empty()) ::_exit(number);
      ++number;
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  const int number = WEXITSTATUS(status);
  EXPECT_EQ(number, 0) << (number != 0 ? std::next(all.begin(), number - 1)->first : "");
  EXPECT_EQ(*memory_at(block_), 9);
  EXPECT_TRUE(ok(gpumem_deallocate(allocator_, block_, 4096, nullptr)));
  EXPECT_TRUE(ok(gpumem_session_ping(session_)));
  EXPECT_TRUE(ok(gpumem_slice_grow(slice_, mebibytes(8).count, nullptr, nullptr)));
}

// The first cancellation point that a call comes by would end the process.
TEST_F(CMisuse, ThreadThatIsCancelledEndsItsCalls) {
  std::thread cancelled([&] {
    EXPECT_EQ(::pthread_cancel(::pthread_self()), 0);
    gpumem_session* other = nullptr;
    gpumem_ipc_handle handle{};
    gpumem_import *closed = nullptr, *freed = nullptr;
    EXPECT_TRUE(ok(gpumem_session_connect(nullptr, &other)));
    EXPECT_TRUE(ok(gpumem_slice_grow(slice_, mebibytes(4).count, nullptr, nullptr)));
    EXPECT_TRUE(ok(gpumem_slice_export(slice_, 0, 0, nullptr, &handle)));
    EXPECT_TRUE(ok(gpumem_import_handle(other, &handle, &closed)));
    EXPECT_TRUE(ok(gpumem_import_close(closed)));
    gpumem_import_free(closed);
    std::uint64_t version = 0;
    EXPECT_TRUE(ok(gpumem_slice_publish(slice_, "cancelled", 0, 0, nullptr, &version)));
    EXPECT_TRUE(ok(gpumem_map_region(other, "cancelled", nullptr, &freed)));
    EXPECT_TRUE(ok(gpumem_remove_region(session_, "cancelled", version)));
    gpumem_import_free(freed);
    gpumem_session_free(other);
    ::pthread_testcancel();
    ADD_FAILURE() << "the cancellation comes afterwards";
  });
  cancelled.join();
}

// A thread may have the smallest stack that there is.
TEST_F(CMisuse, CallsNeedLittleStack) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitized library does not change stacks";
#endif
  pthread_attr_t smallest;
  pthread_t thread;
  ASSERT_EQ(::pthread_attr_init(&smallest), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&smallest, static_cast<std::size_t>(PTHREAD_STACK_MIN)), 0);
  bool all_ok = false;
  std::function<void()> work = [&] {
    gpumem_session* other = nullptr;
    gpumem_ipc_handle handle{};
    gpumem_import *import = nullptr, *region = nullptr;
    std::uint64_t version = 0;
    all_ok = gpumem_session_connect(nullptr, &other) == GPUMEM_OK &&
             gpumem_slice_grow(slice_, mebibytes(8).count, nullptr, nullptr) == GPUMEM_OK &&
             gpumem_slice_export(slice_, 0, 0, nullptr, &handle) == GPUMEM_OK &&
             gpumem_import_handle(other, &handle, &import) == GPUMEM_OK &&
             gpumem_slice_publish(slice_, "small", 0, 0, nullptr, &version) == GPUMEM_OK &&
             gpumem_map_region(other, "small", nullptr, &region) == GPUMEM_OK &&
             gpumem_remove_region(session_, "small", version) == GPUMEM_OK;
    gpumem_import_free(region);
    gpumem_import_free(import);
    gpumem_session_free(other);
  };
  const auto run = [](void* what) -> void* {
    return (*static_cast<std::function<void()>*>(what))(), nullptr;
  };
  ASSERT_EQ(::pthread_create(&thread, &smallest, run, &work), 0);
  ASSERT_EQ(::pthread_join(thread, nullptr), 0);
  EXPECT_TRUE(all_ok);
}

/// Runs `work` in 64 threads until it answers something else than success; the last answers.
std::vector<gpumem_status> in_64_threads(const std::function<gpumem_status()>& work,
                                         const std::function<void()>& meanwhile) {
  std::vector<gpumem_status> last(64, GPUMEM_OK);
  std::atomic<int> at_work{0};
  std::vector<std::thread> threads;
  for (gpumem_status& own : last) {
    threads.emplace_back([&work, &at_work, &own] {
      own = work();
      ++at_work;
      while (own == GPUMEM_OK) own = work();
    });
  }
  EXPECT_TRUE(eventually([&] { return at_work == 64; }));
  meanwhile();
  for (std::thread& thread : threads) thread.join();
  return last;
}

TEST_F(CMisuse, SessionAndSliceMayBeClosedWhile64ThreadsUseThem) {
  const auto slices = in_64_threads(
      [&] {
        std::uint64_t committed = 0;
        const gpumem_status grown = gpumem_slice_grow(slice_, mebibytes(8).count, nullptr, &committed);
        if (grown != GPUMEM_OK) return grown == GPUMEM_CANCELLED ? GPUMEM_FAILED_PRECONDITION : grown;
        return gpumem_slice_set_in_use(slice_, committed, nullptr);
      },
      [&] { EXPECT_TRUE(ok(gpumem_slice_close(slice_))); });
  EXPECT_EQ(slices, std::vector<gpumem_status>(64, GPUMEM_FAILED_PRECONDITION));
  const auto sessions = in_64_threads([&] { return gpumem_session_usage(session_, no_usage, nullptr); },
                                      [&] { EXPECT_TRUE(ok(gpumem_session_close(session_))); });
  EXPECT_EQ(sessions, std::vector<gpumem_status>(64, GPUMEM_FAILED_PRECONDITION));
}

TEST_F(CMisuse, AllocatorMayBeClosedWhile64ThreadsUseIt) {
  EXPECT_TRUE(ok(gpumem_deallocate(allocator_, block_, 4096, nullptr)));
  EXPECT_TRUE(ok(gpumem_deallocate(allocator_, large_, 40 << 20, nullptr)));
  std::atomic<bool> ending{false};
  std::atomic<bool> given_up{false};
  const auto last = in_64_threads(
      [&] {
        // When the end comes each allocates for some time still, then holds no block, but goes on calling.
        thread_local int left = 1'000;
        if (given_up) return GPUMEM_ABORTED;
        if (ending && --left < 0) return gpumem_release_stream(allocator_, nullptr);
        gpumem_address address = 0;
        const gpumem_status got = gpumem_allocate(allocator_, 4096, nullptr, &address);
        if (got != GPUMEM_OK) return got;
        *memory_at(address) = 1;
        return gpumem_deallocate(allocator_, address, 4096, nullptr);
      },
      [&] {
        ending = true;
        given_up = !eventually([&] { return gpumem_allocator_close(allocator_) == GPUMEM_OK; });
      });
  EXPECT_EQ(last, std::vector<gpumem_status>(64, GPUMEM_FAILED_PRECONDITION));
  gpumem_address address = 0;
  EXPECT_TRUE(fails(GPUMEM_FAILED_PRECONDITION, gpumem_allocate(allocator_, 4096, nullptr, &address)));
}

}  // namespace
}  // namespace gpumem::test
