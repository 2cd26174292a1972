// A block that further streams use serves nobody, once it is freed, before their work is done.
#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

struct RecordedStreams : EngineTest, testing::WithParamInterface<std::uint64_t> {
  RecordedStreams() : EngineTest({.limit = mebibytes(64)}) {}

  void record(Address at, StreamHandle on) { EXPECT_TRUE(succeeded(engine_->record_stream(at, on))); }
  /// As many blocks as take all memory.
  std::vector<Address> take_all(StreamHandle on) {
    std::vector<Address> all;
    for (std::uint64_t taken = 0; taken < mebibytes(64).count; taken += bytes_.count) {
      const auto got = engine_->allocate(bytes_, on);
      if (!got) break;  // rounding takes some
      all.push_back(*got);
    }
    return all;
  }
  /// Takes all memory on kOne, has `users` use it, and frees it on kOne. The ends of the users' work.
  std::vector<FakeStreams::Moment> use_up(const std::vector<StreamHandle>& users) {
    const auto all = take_all(kOne);
    std::vector<FakeStreams::Moment> ends;
    for (const StreamHandle user : users) {
      for (const Address at : all) record(at, user);
      ends.push_back(streams_.give(user));
    }
    streams_.give(kOne);
    free_all(all, bytes_);
    return ends;
  }
  const Bytes bytes_{GetParam()};
};

TEST_P(RecordedStreams, AreDoneBeforeTheBlockServesItsOwnStream) {
  const auto all = use_up({kTwo, kThree});
  for (const auto& used : all) EXPECT_FALSE(streams_.is_known_reached(used));
  free_all(take_all(kOne), bytes_);
  for (const auto& used : all) EXPECT_TRUE(streams_.is_known_reached(used));
}

TEST_P(RecordedStreams, AreDoneBeforeTheBlockServesAnyOtherStream) {
  const auto used = use_up({kTwo});
  free_all(take_all(kThree), bytes_, kThree);
  EXPECT_TRUE(streams_.is_known_reached(used[0]));
}

TEST_P(RecordedStreams, AreDoneBeforeTheBlockServesTheLegacyDefaultStreamsCache) {
  const Address at = allocate(bytes_, nullptr);
  record(at, kTwo);
  const auto used = streams_.give(kTwo);
  free(at, bytes_, nullptr);
  const Address other = allocate(bytes_, nullptr);
  EXPECT_TRUE(other != at || streams_.is_known_reached(used));
  free(other, bytes_, nullptr);
}

TEST_P(RecordedStreams, LegacyDefaultStreamIsWaitedForToo) {
  const auto used = use_up({nullptr});
  free_all(take_all(kOne), bytes_);
  EXPECT_TRUE(streams_.is_known_reached(used[0]));
}

TEST_P(RecordedStreams, PerThreadStreamOfAThreadThatHasEndedIsWaitedFor) {
  const auto per_thread = reinterpret_cast<StreamHandle>(std::uintptr_t{2});
  const auto all = take_all(kOne);
  FakeStreams::Moment used;
  std::thread([&] {
    for (const Address at : all) record(at, per_thread);
    used = streams_.give(per_thread);
  }).join();
  free_all(all, bytes_);
  free_all(take_all(kOne), bytes_);
  EXPECT_TRUE(streams_.is_known_reached(used));
}

TEST_P(RecordedStreams, WorkThatIsDoneDelaysNothing) {
  const auto used = use_up({kTwo, kThree});
  streams_.finish_all();
  streams_.on_wait([] { ADD_FAILURE() << "the host waits"; });
  free_all(take_all(kOne), bytes_);
  streams_.on_wait({});
}

TEST_P(RecordedStreams, StreamThatTheBlockIsFreedOnNeedsNoWait) {
  const Address at = allocate(bytes_);
  record(at, kOne);
  streams_.give(kOne);
  free(at, bytes_);
  EXPECT_EQ(allocate(bytes_), at);
  free(at, bytes_);
}

TEST_P(RecordedStreams, AreForgottenWithTheBlock) {
  const Address at = allocate(bytes_);
  record(at, kTwo);
  free(at, bytes_);
  streams_.finish_all();
  pass(milliseconds(300));
  free_all(take_all(kOne), bytes_);
  const auto later = streams_.give(kTwo);
  free_all(take_all(kOne), bytes_);
  EXPECT_FALSE(streams_.is_known_reached(later)) << "the next block there has no recorded streams";
}

TEST_P(RecordedStreams, AreKeptWhenTheBlockChangesItsSize) {
  const Address at = allocate(bytes_);
  record(at, kTwo);
  const Bytes less{bytes_.count - 44};
  ASSERT_TRUE(succeeded(engine_->extend(at, bytes_, less, kOne)));
  const auto used = streams_.give(kTwo);
  free(at, less);
  free_all(take_all(kOne), bytes_);
  EXPECT_TRUE(streams_.is_known_reached(used));
}

TEST_P(RecordedStreams, AreKeptWhileManyOthersComeAndGo) {
  const Address at = allocate({4096});
  record(at, kTwo);
  for (std::uint64_t i = 100; i < 300; ++i) {
    free(allocate({256}, stream(i)), {256}, stream(i));
    streams_.finish(stream(i));
  }
  const auto used = streams_.give(kTwo);
  free(at, {4096});
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_TRUE(streams_.is_known_reached(used));
}

TEST_P(RecordedStreams, MayEndAfterTheyWereReleased) {
  const auto all = take_all(kOne);
  for (const Address at : all) record(at, kTwo);
  const auto used = streams_.give(kTwo);
  EXPECT_TRUE(succeeded(engine_->release_stream(kTwo)));
  streams_.end(kTwo);
  free_all(all, bytes_);
  free_all(take_all(kOne), bytes_);
  EXPECT_TRUE(streams_.is_known_reached(used));
}

TEST_P(RecordedStreams, MayEndAfterTheBlockWasFreed) {
  const auto used = use_up({kTwo});
  streams_.end(kTwo);
  free_all(take_all(kOne), bytes_);
  EXPECT_TRUE(streams_.is_known_reached(used[0]));
}

TEST_P(RecordedStreams, WhoseWorkIsCapturedHoldTheBlockUntilTheyCanBeMarked) {
  const Address at = allocate(bytes_);
  record(at, kTwo);
  streams_.give(kTwo);
  streams_.fail(FakeStreams::Call::kMark, 1, {Code::kFailedPrecondition, "a graph is being captured"});
  free(at, bytes_);
  EXPECT_TRUE(streams_.heal());
  streams_.finish_all();
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_FALSE(statistics().committed.is_zero()) << "nobody knows where the captured work is";
  free(allocate({256}, kTwo), {256}, kTwo);
  streams_.finish_all();
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_TRUE(statistics().committed.is_zero());
}

TEST_P(RecordedStreams, HeldBlockIsNotInUseAndCannotBeFreedAgain) {
  const auto used = use_up({kTwo});
  EXPECT_TRUE(statistics().in_use.is_zero());
  EXPECT_TRUE(snapshot().empty());
  const Address at = allocate({256});
  record(at, kTwo);
  free(at, {256});
  EXPECT_TRUE(failed_with(engine_->deallocate(at, {256}, kOne), Code::kInvalidArgument));
  EXPECT_TRUE(failed_with(engine_->record_stream(at, kTwo), Code::kInvalidArgument));
  EXPECT_TRUE(succeeded(engine_->close())) << "held blocks are no blocks in use";
  EXPECT_TRUE(streams_.is_known_reached(used[0])) << "but nothing is unmapped before their work is done";
}

TEST_P(RecordedStreams, PressureGetsTheMemoryAfterTheirWork) {
  const auto used = use_up({kTwo});
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_TRUE(streams_.is_known_reached(used[0]));
  EXPECT_TRUE(statistics().committed.is_zero());
}

INSTANTIATE_TEST_SUITE_P(Sizes, RecordedStreams,
                         testing::Values(300, 4096, 100'000, 1 << 20, (8 << 20) + 1, 64 << 20));

}  // namespace
}  // namespace gpumem::allocator::test
