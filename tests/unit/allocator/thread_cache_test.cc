// A block that two threads free at the same moment is listed by more than one cache, or twice by one. It is
// handed out once.
#include "client/allocator/thread_cache.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/allocator/fake_streams.h"

namespace gpumem::allocator::test {
namespace {

constexpr StreamIndex kLegacy = 1, kOther = 2;
constexpr std::uint64_t kBytes = 4096;
constexpr std::uint64_t kBudget = mebibytes(4).count;

/// Counts what leaves a cache.
struct CountingSink final : CacheSink {
  void hand_over(StreamIndex, StreamPort::Mark) override {}
  void free_cached(StreamIndex, const Block& block) override {
    block.slot->set(BlockWord());
    ++count;
  }
  void dismiss(StreamIndex, const std::array<StreamPort::Mark, 2>&) override {}
  std::size_t count = 0;
};

/// Two threads' caches, and one block of their size class.
class ThreadCacheTest : public testing::Test {
 protected:
  ThreadCacheTest() {
    span_.base = kAddress;
    span_.size_class = class_of(kBytes);
    span_.slots = &span_.own;
    for (ThreadCache* cache : {&first_, &second_}) {
      cache->set_budget(kBudget);
      cache->legacy().assign(kLegacy);
      EXPECT_TRUE(cache->open_bin(cache->legacy(), span_.size_class, sink_));
    }
    hand_out(kLegacy);
  }
  void hand_out(StreamIndex stream) { slot().set(BlockWord::used(stream, 0, 1).with_bytes(kBytes)); }
  bool put(ThreadCache& cache) { return cache.put_of(nullptr, span_, slot(), kAddress, kBytes); }
  /// Has `cache` free the block as a thread does that has not seen yet that another one has.
  void put_late(ThreadCache& cache) {
    hand_out(kLegacy);
    EXPECT_TRUE(put(cache));
  }
  Slot& slot() { return span_.own; }
  std::size_t flushed(ThreadCache& cache) {
    sink_.count = 0;
    cache.flush(sink_);
    return sink_.count;
  }

  static constexpr Address kAddress = Address{1} << 40;
  Span span_;
  const std::shared_ptr<ThreadCache::EngineRef> engine_ = std::make_shared<ThreadCache::EngineRef>();
  gpumem::test::FakeStreams streams_;
  CountingSink sink_;
  ThreadCache first_{engine_, 1, streams_}, second_{engine_, 2, streams_};
};

TEST_F(ThreadCacheTest, BlockThatOneCacheListsTwiceGoesIntoABatchOnce) {
  EXPECT_TRUE(put(first_));
  put_late(first_);
  std::vector<Block> batch;
  first_.legacy().take_older(span_.size_class, batch);
  EXPECT_EQ(batch.size(), 1U);
  EXPECT_EQ(first_.take(kBytes, 0), 0U);
  EXPECT_EQ(flushed(first_), 0U);
}

TEST_F(ThreadCacheTest, BlockThatTwoCachesListIsOfTheOneWhoseNumberItHas) {
  EXPECT_TRUE(put(first_));
  put_late(second_);
  EXPECT_EQ(flushed(first_), 0U);
  EXPECT_EQ(flushed(second_), 1U);
}

TEST_F(ThreadCacheTest, BlockThatTwoCachesListGoesIntoOneBatch) {
  EXPECT_TRUE(put(first_));
  put_late(second_);
  std::vector<Block> batch;
  first_.legacy().take_older(span_.size_class, batch);
  EXPECT_TRUE(batch.empty());
  second_.legacy().take_older(span_.size_class, batch);
  EXPECT_EQ(batch.size(), 1U);
}

TEST_F(ThreadCacheTest, BlockOfAnotherStreamIsTakenUnderTheLockOnly) {
  hand_out(kOther);
  EXPECT_FALSE(put(first_)) << "its stream has one block less, which the allocator must count";
  EXPECT_EQ(slot().get().stream(), kOther);
  EXPECT_TRUE(first_.legacy().push(span_, slot(), kAddress, kBytes, true));
  EXPECT_EQ(first_.take(kBytes, 0), kAddress);
}

}  // namespace
}  // namespace gpumem::allocator::test
