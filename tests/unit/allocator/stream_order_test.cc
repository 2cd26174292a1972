// Memory that is free serves the stream it was freed on at once, and another one after that one's work.
#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

struct StreamOrder : EngineTest {
  explicit StreamOrder(Bytes limit = mebibytes(64)) : EngineTest({.limit = limit}) {}

  /// Takes, uses and frees everything on `on`; the moment its work is over.
  FakeStreams::Moment use_up(StreamHandle on) {
    const Address at = allocate(mebibytes(64), on);
    const auto used = streams_.give(on);
    free(at, mebibytes(64), on);
    return used;
  }
};

struct StreamOrderOfSizes : StreamOrder, testing::WithParamInterface<std::uint64_t> {
  /// Takes, uses and frees most of the memory in blocks of the size, on one stream; the moment its work is
  /// over.
  FakeStreams::Moment use_up_in_blocks() {
    const Bytes bytes{GetParam()};
    const std::size_t count =
        std::max<std::size_t>(1, mebibytes(48).count / std::max<std::uint64_t>(bytes.count, 1024));
    const auto all = allocate_many(count, bytes);
    const auto used = streams_.give(kOne);
    free_all(all, bytes);
    return used;
  }
};

TEST_P(StreamOrderOfSizes, FreedMemoryServesItsOwnStreamAtOnce) {
  const Bytes bytes{GetParam()};
  const Address first = allocate(bytes);
  for (int i = 0; i < 100; ++i) {
    streams_.give(kOne);
    free(first, bytes);
    EXPECT_EQ(allocate(bytes), first);
  }
  const auto marks = streams_.calls(FakeStreams::Call::kMark) + streams_.calls(FakeStreams::Call::kRenew);
  EXPECT_GE(marks, 100U) << "the stream may end after each free";
  EXPECT_LE(marks, 101U);
  EXPECT_EQ(streams_.calls(FakeStreams::Call::kOrder), 0U);
  EXPECT_EQ(streams_.calls(FakeStreams::Call::kWait), 0U);
  EXPECT_EQ(backing_.calls(FakeBacking::Call::kObtain), 1U);
}

TEST_P(StreamOrderOfSizes, FreeingOnTheLegacyDefaultStreamCostsNoCallOfTheDriver) {
  const Bytes bytes{GetParam()};
  const Address first = allocate(bytes, nullptr);
  for (int i = 0; i < 100; ++i) {
    streams_.give(nullptr);
    free(first, bytes, nullptr);
    EXPECT_EQ(allocate(bytes, nullptr), first);
  }
  EXPECT_EQ(streams_.calls(FakeStreams::Call::kMeet), 1U);
  EXPECT_EQ(streams_.calls(FakeStreams::Call::kMark), 0U);
}

TEST_P(StreamOrderOfSizes, NewStreamWithTheHandleOfAnEndedOneComesBehindItsWork) {
  const auto used = use_up_in_blocks();
  streams_.end(kOne);
  ASSERT_TRUE(succeeded(engine_->allocate(mebibytes(64), kOne)));
  EXPECT_TRUE(streams_.is_behind(kOne, used));
}

TEST_P(StreamOrderOfSizes, FreedMemoryServesAnotherStreamBehindItsWork) {
  const auto used = use_up_in_blocks();
  ASSERT_TRUE(succeeded(engine_->allocate(mebibytes(64), kTwo)));
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
}

INSTANTIATE_TEST_SUITE_P(Sizes, StreamOrderOfSizes,
                         testing::Values(300, 4096, 100'000, 1 << 20, (8 << 20) + 1, 64 << 20));

TEST_F(StreamOrder, MarksTakeTurnsAndOneThatCannotBeSetLeavesTheLatest) {
  std::vector<Address> all;
  for (std::uint64_t i = 2; i <= 8; ++i) all.push_back(allocate(mebibytes(i)));  // no size twice
  const Address between = allocate(mebibytes(1)), last = allocate(mebibytes(9));
  for (std::uint64_t i = 2; i <= 7; ++i) free(all[i - 2], mebibytes(i));
  const auto used = streams_.give(kOne);
  free(all.back(), mebibytes(8));
  EXPECT_EQ(streams_.calls(FakeStreams::Call::kMark), 3U);
  EXPECT_EQ(streams_.calls(FakeStreams::Call::kRenew), 4U);
  for (const auto call : {FakeStreams::Call::kRenew, FakeStreams::Call::kMark})
    streams_.fail(call, 1, {Code::kInternal, "captured"});
  free(last, mebibytes(9));
  EXPECT_TRUE(streams_.heal());
  const Address other = allocate(mebibytes(30), kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
  free(other, mebibytes(30), kTwo);
  free(between, mebibytes(1));
}

TEST_F(StreamOrder, AnotherStreamIsOrderedBehindTheWorkNotHeldUpByIt) {
  const auto used = use_up(kOne);
  streams_.on_wait([] { ADD_FAILURE() << "the host waits"; });
  const Address at = allocate(mebibytes(64), kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
  EXPECT_FALSE(streams_.is_known_reached(used));
  free(at, mebibytes(64), kTwo);
  streams_.on_wait({});
}

TEST_F(StreamOrder, NobodyWaitsForAStreamThatHasNothingToDoWithIt) {
  const auto other = streams_.give(kThree);
  const Address small = allocate({256}, kThree);
  const Address large = allocate(mebibytes(32), kOne);
  streams_.give(kOne);
  free(large, mebibytes(32), kOne);
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_FALSE(streams_.is_known_reached(other));
  free(small, {256}, kThree);
}

TEST_F(StreamOrder, BlockMayBeFreedOnAnotherStreamThanItsOwn) {
  const Address at = allocate(mebibytes(64), kOne);
  const auto used = streams_.give(kOne);
  streams_.put_behind(kTwo, used);
  const auto read = streams_.give(kTwo);
  free(at, mebibytes(64), kTwo);
  allocate(mebibytes(64), kOne);
  EXPECT_TRUE(streams_.is_behind(kOne, read)) << "the first must now come after the second";
}

TEST_F(StreamOrder, SmallBlockFreedOnAnotherStreamDoesNotServeItsFirstAtOnce) {
  const auto all = allocate_many(64, mebibytes(1), kOne);
  streams_.give(kOne);
  streams_.put_behind(kTwo, streams_.now(kOne));
  const auto read = streams_.give(kTwo);
  free_all(all, mebibytes(1), kTwo);
  allocate_many(64, mebibytes(1), kOne);
  EXPECT_TRUE(streams_.is_behind(kOne, read));
}

TEST_F(StreamOrder, SlotsThatWereNeverHandedOutComeBehindTheWorkOnTheirSlabsMemory) {
  const auto used = use_up(kOne);
  const Address small = allocate({1000}, kTwo);  // the rest of its slab waits for stream 1 on stream 2 alone
  free(small, {1000}, kThree);
  const StreamHandle other = stream(4);
  allocate({1000}, other);
  EXPECT_TRUE(streams_.is_behind(other, used));
}

TEST_F(StreamOrder, WorkThatIsOverNeedsNoOrder) {
  const auto used = use_up(kOne);
  streams_.finish(kOne);
  allocate(mebibytes(64), kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used)) << "because it was asked, or because it was ordered";
  EXPECT_EQ(streams_.calls(FakeStreams::Call::kWait), 0U);
}

TEST_F(StreamOrder, LatestFreeOnTheLegacyDefaultStreamIsJoinedToAnotherStreamsMemory) {
  const Address first = allocate(mebibytes(32), nullptr);
  const Address second = allocate(mebibytes(32), kTwo);
  const auto used = streams_.give(nullptr);
  free(first, mebibytes(32), nullptr);
  free(second, mebibytes(32), kTwo);
  streams_.on_wait([] { ADD_FAILURE() << "the host waits"; });
  const Address both = allocate(mebibytes(64), kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
  EXPECT_FALSE(streams_.is_known_reached(used));
  free(both, mebibytes(64), kTwo);
  streams_.on_wait({});
}

TEST_F(StreamOrder, NullAndOneAreTheSameStream) {
  const Address at = allocate(mebibytes(64), nullptr);
  streams_.give(nullptr);
  free(at, mebibytes(64), reinterpret_cast<StreamHandle>(std::uintptr_t{1}));
  EXPECT_EQ(allocate(mebibytes(64), nullptr), at);
  EXPECT_EQ(streams_.calls(FakeStreams::Call::kOrder), 0U);
}

TEST_F(StreamOrder, PerThreadStreamIsAnotherOneInEachThread) {
  const auto per_thread = reinterpret_cast<StreamHandle>(std::uintptr_t{2});
  FakeStreams::Moment used;
  std::thread([&] { used = use_up(per_thread); }).join();
  std::thread([&] {
    allocate(mebibytes(64), per_thread);
    EXPECT_TRUE(streams_.is_behind(per_thread, used));
  }).join();
}

TEST_F(StreamOrder, ReleasedStreamsMemoryServesOthersBehindItsWork) {
  const auto used = use_up(kOne);
  EXPECT_TRUE(succeeded(engine_->release_stream(kOne)));
  allocate(mebibytes(64), kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
}

TEST_F(StreamOrder, NewStreamWithAReleasedOnesHandleComesBehindTheOldOnesWork) {
  for (const Bytes bytes : {Bytes{512}, mebibytes(1), mebibytes(64)}) {
    const Address at = allocate(bytes);
    const auto used = streams_.give(kOne);
    free(at, bytes);
    EXPECT_TRUE(succeeded(engine_->release_stream(kOne)));
    streams_.end(kOne);
    const std::size_t all =
        std::max<std::size_t>(1, mebibytes(48).count / std::max<std::uint64_t>(bytes.count, 1024));
    const auto again = allocate_many(all, bytes);
    EXPECT_TRUE(streams_.is_behind(kOne, used)) << to_string(bytes);
    free_all(again, bytes);
  }
}

TEST_F(StreamOrder, ReleasingAStreamThatWasNeverUsedIsNoError) {
  EXPECT_TRUE(succeeded(engine_->release_stream(stream(77))));
  EXPECT_TRUE(succeeded(engine_->release_stream(stream(77))));
}

TEST_F(StreamOrder, BlockOutlivesTheStreamItWasAllocatedOn) {
  const Address small = allocate({700}), large = allocate(mebibytes(9));
  EXPECT_TRUE(succeeded(engine_->release_stream(kOne)));
  EXPECT_EQ(snapshot().size(), 2U);
  free(small, {700}, kTwo);
  free(large, mebibytes(9), kThree);
}

TEST_F(StreamOrder, TenThousandStreamsComeAndGo) {
  for (std::uint64_t i = 1; i <= 10'000; ++i) {
    const Address at = allocate({1000 + i}, stream(i));
    streams_.give(stream(i));
    free(at, {1000 + i}, stream(i));
    if (i % 3 == 0) {
      ASSERT_TRUE(succeeded(engine_->release_stream(stream(i))));
    }
    streams_.end(stream(i));
    if (i % 7 == 0) streams_.finish_all();
  }
}

struct BusyStream : StreamOrder, testing::WithParamInterface<bool> {};

TEST_P(BusyStream, IsSeenToAdvance) {
  int calls = 0;
  const auto use_and_free = [&] {  // a block that has another size than the one before is not cached
    const Bytes bytes = mebibytes(GetParam() ? 2 : 2 + calls++ % 2);
    const Address at = allocate(bytes);
    const auto used = streams_.give(kOne);
    free(at, bytes);
    return used;
  };
  const auto first = use_and_free();
  use_and_free();
  streams_.finish(kOne);
  for (int i = 0; i < 10; ++i) use_and_free();
  pass(milliseconds(100));
  EXPECT_TRUE(streams_.is_known_reached(first));
}

INSTANTIATE_TEST_SUITE_P(Cached, BusyStream, testing::Bool());

struct ManyStreams : StreamOrder {
  ManyStreams() : StreamOrder(gibibytes(1)) {}
};

TEST_F(ManyStreams, WithBlocksInUseAreRefusedWithWordsThatSaySo) {
  std::vector<std::pair<Address, StreamHandle>> all;
  for (std::uint64_t i = 1; i <= 5000; ++i) {
    const auto got = engine_->allocate({256}, stream(i));
    if (!got) {
      EXPECT_TRUE(failed_with(got, Code::kResourceExhausted));
      EXPECT_NE(got.error().message.find("blocks in use"), std::string::npos) << got.error().message;
      EXPECT_GT(i, 4000U);
      break;
    }
    all.emplace_back(*got, stream(i));
  }
  EXPECT_TRUE(engine_->allocate({256}, kOne).has_value()) << "those that are there go on";
  for (const auto& [at, on] : all) free(at, {256}, on);
}

TEST_F(ManyStreams, PerThreadOnesOfThreadsThatHaveEndedAreForgotten) {
  const auto per_thread = reinterpret_cast<StreamHandle>(std::uintptr_t{2});
  for (int i = 0; i < 5000 && !HasFailure(); ++i) {
    std::thread([&] {
      const Bytes bytes = i % 2 == 0 ? mebibytes(2) : Bytes{500};
      const auto got = engine_->allocate(bytes, per_thread);
      ASSERT_TRUE(succeeded(got)) << "thread " << i;
      streams_.give(per_thread);
      free(*got, bytes, per_thread);
    }).join();
    if (i % 10 == 0) streams_.finish_all();
  }
}

TEST_F(StreamOrder, BlockOfAThreadsOwnStreamThatAnotherThreadFreesIsBehindTheWorkOfBoth) {
  const auto per_thread = reinterpret_cast<StreamHandle>(std::uintptr_t{2});
  for (const Bytes bytes : {mebibytes(1), mebibytes(64)}) {
    const Address at = allocate(bytes, per_thread);
    const auto used = streams_.give(per_thread);
    FakeStreams::Moment theirs;
    std::thread([&] {
      theirs = streams_.give(per_thread);
      free(at, bytes, per_thread);
    }).join();
    const std::size_t all =
        std::max<std::size_t>(1, mebibytes(48).count / std::max<std::uint64_t>(bytes.count, 1024));
    const auto again = allocate_many(all, bytes, kTwo);
    EXPECT_TRUE(streams_.is_behind(kTwo, used)) << to_string(bytes);
    EXPECT_TRUE(streams_.is_behind(kTwo, theirs)) << to_string(bytes);
    free_all(again, bytes, kTwo);
  }
}

TEST_F(StreamOrder, MemoryOfAStreamThatIsBeingCapturedWaitsUntilItCanBeAsked) {
  const auto used = use_up(kOne);
  streams_.set_capturing(true);
  allocate(mebibytes(64), kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
  streams_.set_capturing(false);
}

}  // namespace
}  // namespace gpumem::allocator::test
