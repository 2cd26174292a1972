// A thread that is about to end frees blocks without a call of the driver, whose state of it may be gone.
#include <pthread.h>

#include <functional>

#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

const StreamHandle kPerThread = reinterpret_cast<StreamHandle>(std::uintptr_t{2});

struct EndingThreads : EngineTest {
  EndingThreads() : EngineTest({.limit = mebibytes(64)}) {}

  /// Has a thread call `first`, and then, after the library's own destructor of threads, `last`.
  static void in_a_thread(const std::function<void()>& first, const std::function<void()>& last) {
    (void)ThreadTable::thread_number();  // the library's key comes first, and so does its destructor
    pthread_key_t key{};
    ASSERT_EQ(
        ::pthread_key_create(&key, [](void* call) { (*static_cast<const std::function<void()>*>(call))(); }),
        0);
    std::thread([&] {
      (void)ThreadTable::thread_number();
      first();
      ::pthread_setspecific(key, &last);
    }).join();
    ::pthread_key_delete(key);
  }
  std::uint64_t calls() const {
    return streams_.calls(FakeStreams::Call::kMeet) + streams_.calls(FakeStreams::Call::kMark) +
           streams_.calls(FakeStreams::Call::kOrder);
  }
  /// Allocates on the thread's own stream, calls `use`, and frees at the end. Returns the block.
  Address free_at_the_end(Bytes bytes, const std::function<void(Address)>& use) {
    Address at = 0;
    in_a_thread(
        [&] {
          at = allocate(bytes, kPerThread);
          use(at);
        },
        [&] {
          EXPECT_TRUE(ThreadTable::is_ending());
          const auto before = calls();
          free(at, bytes, kPerThread);
          EXPECT_EQ(calls(), before);
        });
    return at;
  }
};

TEST_F(EndingThreads, FreeInTheOrderOfADefaultStreamThatNobodyHasNamed) {
  FakeStreams::Moment work;
  const Address at = free_at_the_end(mebibytes(64), [&](Address) { work = streams_.give(kPerThread); });
  EXPECT_EQ(allocate(mebibytes(64), kTwo), at);
  EXPECT_TRUE(streams_.is_behind(kTwo, work));
  free(at, mebibytes(64), kTwo);
  free(allocate(mebibytes(1), nullptr), mebibytes(1), nullptr);
}

TEST_F(EndingThreads, LeaveABlockToTheNextCallThatNamesItsRecordedStream) {
  FakeStreams::Moment work;
  free_at_the_end(mebibytes(64), [&](Address at) {
    EXPECT_TRUE(succeeded(engine_->record_stream(at, kTwo)));
    work = streams_.give(kTwo);
  });
  EXPECT_FALSE(engine_->allocate(mebibytes(64), kOne).has_value()) << "its work is not known to be over";
  free(allocate(mebibytes(64), kTwo), mebibytes(64), kTwo);
  EXPECT_TRUE(streams_.is_known_reached(work));
}

TEST_F(EndingThreads, LeaveABlockThatClosingWaitsFor) {
  FakeStreams::Moment work;
  free_at_the_end(mebibytes(8), [&](Address at) {
    EXPECT_TRUE(succeeded(engine_->record_stream(at, kTwo)));
    work = streams_.give(kTwo);
  });
  EXPECT_TRUE(succeeded(engine_->close()));
  EXPECT_TRUE(streams_.is_known_reached(work));
}

}  // namespace
}  // namespace gpumem::allocator::test
