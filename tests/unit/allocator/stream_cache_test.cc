// Threads cache blocks of streams that are no default stream, each with a mark behind it.
#include <array>
#include <barrier>
#include <functional>
#include <semaphore>

#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

using Call = FakeStreams::Call;

/// A thread that does what it is told, and so keeps its caches.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    run({});
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  void run(std::function<void()> act) {
    act_ = std::move(act);
    begin_.release();
    end_.acquire();
  }

 private:
  void work() {
    for (bool more = true; more;) {
      begin_.acquire();
      more = act_ != nullptr;
      if (more) act_();
      end_.release();
    }
  }

  std::function<void()> act_;
  std::binary_semaphore begin_{0}, end_{0};
  std::thread thread_;
};

struct StreamCache : EngineTest {
  explicit StreamCache(Bytes limit = mebibytes(64)) : EngineTest({.limit = limit}) {}

  /// Has the calling thread cache a block on `on`. The end of the work that used it.
  FakeStreams::Moment cache_one(Bytes bytes, StreamHandle on) {
    for (int i = 0; i < 3; ++i) free(allocate(bytes, on), bytes, on);  // makes the place and the marks
    const Address at = allocate(bytes, on);
    const auto used = streams_.give(on);
    EXPECT_TRUE(engine_->try_deallocate(at, bytes, on));
    return used;
  }
  /// Frees so many blocks that bins are full.
  void cache_all(Bytes bytes, StreamHandle on) { free_all(allocate_many(8, bytes, on), bytes, on); }
  /// All memory, on `on`.
  Address take_all(StreamHandle on) { return allocate(mebibytes(64), on); }
  std::uint64_t port_calls() const {
    std::uint64_t sum = 0;
    for (const Call call : {Call::kMeet, Call::kMark, Call::kOrder, Call::kWait, Call::kIdOf, Call::kRenew}) {
      sum += streams_.calls(call);
    }
    return sum;
  }
};

struct StreamCacheOfSizes : StreamCache, testing::WithParamInterface<std::uint64_t> {};

TEST_P(StreamCacheOfSizes, ServesItsStreamByOneCallAndTakesABlockByTwo) {
  const Bytes bytes{GetParam()};
  cache_one(bytes, kOne);
  const auto ids = streams_.calls(Call::kIdOf), renewed = streams_.calls(Call::kRenew), all = port_calls();
  const Address at = engine_->try_allocate(bytes, kOne);
  ASSERT_NE(at, 0U);
  streams_.give(kOne);
  EXPECT_TRUE(engine_->try_deallocate(at, bytes, kOne));
  EXPECT_EQ(streams_.calls(Call::kIdOf) - ids, 2U);
  EXPECT_EQ(streams_.calls(Call::kRenew) - renewed, 1U);
  EXPECT_EQ(port_calls() - all, 3U);
}

TEST_F(StreamCache, OfOneStreamTakesNothingFromTheCacheOfAnother) {
  constexpr Bytes bytes{4096};
  for (const StreamHandle stream : {kOne, kTwo}) cache_one(bytes, stream);
  for (const StreamHandle stream : {kOne, kTwo}) {
    const Address at = engine_->try_allocate(bytes, stream);
    ASSERT_NE(at, 0U);
    EXPECT_TRUE(engine_->try_deallocate(at, bytes, stream));
  }
}

TEST_P(StreamCacheOfSizes, ServesNoOtherStreamAndNoneThatHasTheHandleNow) {
  const Bytes bytes{GetParam()};
  const auto used = cache_one(bytes, kOne);
  EXPECT_EQ(engine_->try_allocate(bytes, kTwo), 0U);
  streams_.end(kOne);
  EXPECT_EQ(engine_->try_allocate(bytes, kOne), 0U);
  take_all(kOne);
  EXPECT_TRUE(streams_.is_behind(kOne, used));
}

TEST_P(StreamCacheOfSizes, IsFlushedByAnotherThreadWithTheMarkAndWithoutACall) {
  const Bytes bytes{GetParam()};
  Worker owner;
  FakeStreams::Moment used;
  owner.run([&] {
    used = cache_one(bytes, kOne);
    streams_.end(kOne);
  });
  pass(milliseconds(100));
  const auto calls = port_calls();
  pass(milliseconds(1000));  // longer than a cache may be unused
  EXPECT_EQ(statistics().cached, Bytes{});
  EXPECT_EQ(port_calls(), calls);
  take_all(kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
}

TEST_P(StreamCacheOfSizes, IsLeftByAThreadThatEnds) {
  const Bytes bytes{GetParam()};
  FakeStreams::Moment used;
  std::thread([&] {
    used = cache_one(bytes, kOne);
    streams_.end(kOne);
  }).join();
  EXPECT_EQ(statistics().cached, Bytes{});
  take_all(kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
}

TEST_P(StreamCacheOfSizes, RefusesABlockThatIsFreedTwiceAndOneOfAnotherSize) {
  const Bytes bytes{GetParam()};
  cache_one(bytes, kOne);
  const Address at = engine_->try_allocate(bytes, kOne);
  EXPECT_FALSE(engine_->try_deallocate(at, {bytes.count - 1}, kOne));
  EXPECT_TRUE(failed_with(engine_->deallocate(at, {bytes.count - 1}, kOne), Code::kInvalidArgument));
  EXPECT_TRUE(engine_->try_deallocate(at, bytes, kOne));
  EXPECT_FALSE(engine_->try_deallocate(at, bytes, kOne));
  EXPECT_TRUE(failed_with(engine_->deallocate(at, bytes, kOne), Code::kInvalidArgument));
}

INSTANTIATE_TEST_SUITE_P(Sizes, StreamCacheOfSizes, testing::Values(300, 4096, 100'000, 1 << 20, 16 << 20));

TEST_F(StreamCache, LargeBlockIsOfAnotherThreadThatNeedsItBeforeMoreIsCommitted) {
  Worker owner;
  FakeStreams::Moment used;
  owner.run([&] { used = cache_one(mebibytes(40), kOne); });
  EXPECT_EQ(statistics().cached, mebibytes(40));
  const auto growths = backing_.calls(FakeBacking::Call::kObtain);
  allocate(mebibytes(36), kTwo);
  EXPECT_EQ(backing_.calls(FakeBacking::Call::kObtain), growths);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
  owner.run([&] { EXPECT_EQ(engine_->try_allocate(mebibytes(40), kOne), 0U); });
}

TEST_F(StreamCache, LargeBlockStaysWhileItsThreadAllocatesItsSizeOnly) {
  free(allocate(mebibytes(32), kOne), mebibytes(32), kOne);
  const Address one = allocate(mebibytes(4), kOne), other = allocate(mebibytes(8), kOne);
  EXPECT_FALSE(engine_->try_deallocate(one, mebibytes(4), kOne));
  free(one, mebibytes(4), kOne);
  free(other, mebibytes(8), kOne);
  EXPECT_EQ(statistics().cached, Bytes{}) << "sizes differ";
  cache_one(mebibytes(4), kOne);
  EXPECT_EQ(statistics().cached, mebibytes(4));
  allocate(mebibytes(8), kOne);
  EXPECT_EQ(statistics().cached, Bytes{});
  EXPECT_EQ(backing_.most_committed(), mebibytes(32));
}

TEST_F(StreamCache, MarkOfOneThreadsCacheCoversNothingThatAnotherThreadFreed) {
  Worker first;
  const Address large = allocate(mebibytes(32), kOne);
  first.run([&] { cache_one(kibibytes(4), kOne); });
  streams_.finish(kOne);  // the cache's mark is reached
  const auto later = streams_.give(kOne);
  free(large, mebibytes(32), kOne);
  EXPECT_TRUE(
      succeeded(engine_->trim_unused(Bytes{1})));  // flushes the cache, and asks how far the stream has come
  EXPECT_FALSE(streams_.is_known_reached(later));
  allocate(mebibytes(32), kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, later));
}

TEST_F(StreamCache, MarkOfAnotherThreadsCacheCoversNoSurplus) {
  constexpr Bytes kBytes = kibibytes(64);
  auto other = std::make_unique<Worker>();
  other->run([&] { cache_one(kBytes, kOne); });
  const auto all = allocate_many(mebibytes(64).count / kBytes.count - 1, kBytes, kOne);
  const auto half = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  free_all({all.begin(), half}, kBytes, kOne);
  streams_.finish(kOne);  // the marks so far are reached
  const auto used = streams_.give(kOne);
  free_all({half, all.end()}, kBytes, kOne);  // more than a cache takes
  other.reset();                              // leaves its mark
  while (!HasFailure() && statistics().in_use < mebibytes(56)) allocate(kBytes, kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
}

TEST_F(StreamCache, MarksOfManyThreadsAreAllReachedBeforeTheMemoryIsFree) {
  std::array<Worker, 8> workers;
  std::vector<FakeStreams::Moment> used;
  for (int round = 0; round < 4; ++round) {
    for (Worker& worker : workers) worker.run([&] { used.push_back(cache_one(kibibytes(64), kOne)); });
    if (round % 2 == 0) {
      EXPECT_TRUE(succeeded(engine_->trim_unused(Bytes{1})));
    }
  }
  take_all(kTwo);
  for (const auto& moment : used) EXPECT_TRUE(streams_.is_behind(kTwo, moment));
}

TEST_F(StreamCache, BlockThatACaptureLeavesWithoutAMarkIsNotCachedAndEarlierOnesKeepTheirs) {
  constexpr Bytes kBytes = kibibytes(64);
  const Address at = allocate(kBytes, kOne);
  const auto used = cache_one(kBytes, kOne);
  streams_.fail(Call::kRenew, 1, {Code::kInternal, "captured"}, 2);
  streams_.fail(Call::kMark, 1, {Code::kInternal, "captured"});
  EXPECT_FALSE(engine_->try_deallocate(at, kBytes, kOne));
  free(at, kBytes, kOne);
  EXPECT_TRUE(streams_.heal());
  const Address cached = engine_->try_allocate(kBytes, kOne);
  EXPECT_NE(cached, 0U);
  EXPECT_NE(cached, at);
  EXPECT_EQ(engine_->try_allocate(kBytes, kOne), 0U);
  free(cached, kBytes, kOne);
  free(allocate(mebibytes(2), kOne), mebibytes(2), kOne);  // sets the mark
  take_all(kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
}

TEST_F(StreamCache, MemoryWhoseMarkACaptureTookWaitsForTheNextCallThatNamesItsStream) {
  const Address at = allocate(mebibytes(1), kOne);
  free(at, mebibytes(1), kOne);
  const Address again = allocate(mebibytes(1), kOne);
  const auto used = streams_.give(kOne);
  streams_.set_taking(true);
  EXPECT_TRUE(engine_->try_deallocate(again, mebibytes(1), kOne));
  streams_.set_taking(false);
  streams_.finish_all();
  EXPECT_FALSE(engine_->allocate(mebibytes(64), kTwo).has_value()) << "nobody knows that its work is over";
  free(allocate({256}, kOne), {256}, kOne);
  take_all(kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
}

TEST_F(StreamCache, ReleasedStreamHasNoBlocksInTheCacheOfAnyThread) {
  Worker other;
  FakeStreams::Moment used;
  other.run([&] { used = cache_one(mebibytes(1), kOne); });
  EXPECT_NE(statistics().cached, Bytes{});
  EXPECT_TRUE(succeeded(engine_->release_stream(kOne)));
  EXPECT_EQ(statistics().cached, Bytes{});
  streams_.end(kOne);
  other.run([&] { EXPECT_EQ(engine_->try_allocate(mebibytes(1), kOne), 0U); });
  take_all(kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
}

TEST_F(StreamCache, HoldsNoMoreThanTheThreadsBudgetForAllStreams) {
  for (std::uint64_t i = 1; i <= 50; ++i) {
    for (const std::uint64_t bytes : {256, 4096, 65'536, 1 << 20}) cache_all({bytes}, stream(i));
  }
  EXPECT_LE(statistics().cached, mebibytes(1));
  EXPECT_NE(statistics().cached, Bytes{});
}

/// Blocks of 1 to 16 times a size.
struct Blocks {
  Bytes unit;
  std::uint64_t count = 0;  ///< of each thread
};
struct ManyThreads : StreamCache, testing::WithParamInterface<Blocks> {
  ManyThreads() : StreamCache(gibibytes(64)) {}
};

TEST_P(ManyThreads, WithFourStreamsEachCommitLittleMoreThanTheyUse) {
  constexpr std::uint64_t kThreads = 64;
  const auto [unit, count] = GetParam();
  Bytes in_use;
  std::barrier all_hold(kThreads, [&]() noexcept { in_use = statistics().in_use; });
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const auto on = [&](std::uint64_t i) { return stream(1 + thread * 4 + i % 4); };
      const auto size = [&](std::uint64_t i) { return Bytes{unit.count * (i / 4 * 5 % 16 + 1)}; };
      std::vector<Address> held(count);
      for (std::uint64_t i = 0; i < count; ++i) {
        for (int pair = 0; pair < 4; ++pair) free(allocate(size(i), on(i)), size(i), on(i));
        held[i] = allocate(size(i), on(i + 1));
      }
      all_hold.arrive_and_wait();
      for (std::uint64_t i = 0; i < count; ++i) free(held[i], size(i), on(i + 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(static_cast<double>(backing_.most_committed().count), 1.03 * static_cast<double>(in_use.count));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ManyThreads,
                         testing::Values(Blocks{kibibytes(16), 2048}, Blocks{mebibytes(1), 64}),
                         [](const auto& info) {
                           return std::to_string(info.param.unit.count >> 10) + "KiB";
                         });

// ---- Streams whose end is announced ----

struct AnnouncedStreams : StreamCacheOfSizes {
  AnnouncedStreams() { streams_.announce_ends(); }
};

TEST_P(AnnouncedStreams, CostTheIdAloneAndNoMark) {
  const Bytes bytes{GetParam()};
  cache_one(bytes, kOne);
  const auto all = port_calls();
  const Address at = engine_->try_allocate(bytes, kOne);
  ASSERT_NE(at, 0U);
  EXPECT_TRUE(engine_->try_deallocate(at, bytes, kOne));
  EXPECT_EQ(port_calls() - all, 2U);
  EXPECT_EQ(streams_.marks(), 0U);
}

TEST_P(AnnouncedStreams, AreMarkedWhenTheyEndOrOthersNeedTheirMemory) {
  const Bytes bytes{GetParam()};
  for (const bool ends : {false, true}) {
    const auto used = cache_one(bytes, kOne);
    if (ends) {
      EXPECT_TRUE(engine_->release_stream(kOne));
      streams_.end(kOne);
      EXPECT_EQ(engine_->try_allocate(bytes, kOne), 0U) << "another stream's handle";
    }
    const Address all = take_all(kTwo);
    EXPECT_TRUE(streams_.is_behind(kTwo, used)) << ends;
    free(all, mebibytes(64), kTwo);
  }
}

TEST_P(AnnouncedStreams, AreMarkedByAThreadThatFlushesTheirCaches) {
  const Bytes bytes{GetParam()};
  Worker owner;
  FakeStreams::Moment used;
  owner.run([&] { used = cache_one(bytes, kOne); });
  pass(milliseconds(3000));
  EXPECT_EQ(statistics().cached, Bytes{});
  take_all(kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
}

// The older mark covers no memory that became free after it.
TEST_P(AnnouncedStreams, AreMarkedAgainForTheirLatestMemory) {
  const Bytes bytes{GetParam()};
  const Address older = take_all(kOne);
  streams_.give(kOne);
  free(older, mebibytes(64), kOne);
  pass(milliseconds(100));
  EXPECT_EQ(streams_.marks(), 1U) << "somebody asked how far the stream is";
  const auto used = cache_one(bytes, kOne);
  streams_.on_wait([] { ADD_FAILURE() << "the host waits"; });
  take_all(kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
  streams_.on_wait({});
}

TEST_P(AnnouncedStreams, ThatEndUnmarkedAreNotNamedAnyMore) {
  const Bytes bytes{GetParam()};
  cache_one(bytes, kOne);
  streams_.fail(Call::kMark, 1);
  EXPECT_FALSE(engine_->release_stream(kOne));
  streams_.end(kOne);
  EXPECT_TRUE(failed_with(engine_->allocate(mebibytes(64), kTwo), Code::kResourceExhausted));
  pass(milliseconds(1000));
}

INSTANTIATE_TEST_SUITE_P(Sizes, AnnouncedStreams, testing::Values(300, 4096, 100'000, 1 << 20, 16 << 20));

}  // namespace
}  // namespace gpumem::allocator::test
