// Unused memory goes back after the idle time, and when the broker asks. It is not returned if it would be
// requested again at once.
#include <barrier>

#include "tests/support/eventually.h"
#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

using std::chrono::seconds;

struct GivingBack : EngineTest {
  GivingBack() : EngineTest({.limit = gibibytes(1)}) {}
  /// A live block, and so much more used for a moment.
  void burst(Bytes bytes) {
    live_ = allocate(mebibytes(10));
    const Address at = allocate(bytes);
    engine_->background_tick(now_ += milliseconds(100));
    free(at, bytes);
    streams_.finish_all();
    engine_->background_tick(now_ += milliseconds(100));
  }
  Address live_ = 0;
};

TEST_F(GivingBack, MemoryOfABurstReturnsWithinTheIdleTimeAndNotBefore) {
  burst(mebibytes(600));
  EXPECT_GE(backing_.committed(), mebibytes(610));
  pass(milliseconds(1600));
  EXPECT_GE(backing_.committed(), mebibytes(610)) << "it may be needed again any moment";
  pass(milliseconds(600));
  EXPECT_LE(backing_.committed(), mebibytes(10) + backing_.largest_extent());
  free(live_, mebibytes(10));
}

TEST_F(GivingBack, EverythingReturnsWhenNothingIsUsed) {
  burst(mebibytes(100));
  const auto small = allocate_many(3000, {900});
  free_all(small, {900});
  free(live_, mebibytes(10));
  streams_.finish_all();
  pass(milliseconds(4500));
  EXPECT_EQ(backing_.committed(), Bytes{}) << "what threads have cached is not needed, either";
}

TEST_F(GivingBack, EverythingReturnsThatSmallBlocksOfSeveralStreamsLeave) {
  const std::vector<StreamHandle> on = {kOne, kTwo, kThree};
  std::vector<Address> small;
  for (std::size_t i = 0; i < 30; ++i) {
    small.push_back(allocate(kibibytes(128), on[i % 3]));
    streams_.give(on[i % 3]);
  }
  for (std::size_t i = 0; i < small.size(); ++i) free(small[i], kibibytes(128), on[i % 3]);
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), Bytes{});
}

TEST_F(GivingBack, AlternatingLoadKeepsItsMemory) {
  for (int round = 0; round < 40; ++round) {
    const auto all = allocate_many(8, mebibytes(64));
    pass(milliseconds(500));
    free_all(all, mebibytes(64));
    streams_.finish_all();
    pass(milliseconds(1000));
  }
  EXPECT_LE(backing_.calls(FakeBacking::Call::kObtain), 8U)
      << "what was obtained in the first round serves all the others";
  EXPECT_EQ(statistics().given_back, 0U);
}

TEST_F(GivingBack, MemoryWhoseWorkIsNotOverIsNeitherUnmappedNorWaitedForInTheBackground) {
  const Address at = allocate(mebibytes(64));
  streams_.give(kOne);
  free(at, mebibytes(64));
  streams_.on_wait([] { ADD_FAILURE() << "the background thread waits"; });
  pass(seconds(5));
  EXPECT_EQ(backing_.mapped(), backing_.committed());
  EXPECT_GE(backing_.committed(), mebibytes(64));
  streams_.on_wait({});
  streams_.finish_all();
  pass(seconds(5));
  EXPECT_EQ(backing_.committed(), Bytes{});
}

TEST_F(GivingBack, TrimGivesWhollyFreeExtentsAndKeepsTheOthers) {
  burst(mebibytes(600));
  const auto trimmed = engine_->trim(kAll);
  ASSERT_TRUE(succeeded(trimmed));
  EXPECT_LE(backing_.committed(), mebibytes(10) + backing_.largest_extent());
  EXPECT_GE(*trimmed, mebibytes(500));
  EXPECT_EQ(statistics().returnable, Bytes{});
  free(live_, mebibytes(10));
}

TEST_F(GivingBack, TrimGivesAtLeastWhatIsAskedAndNotEverything) {
  backing_.on_grant([](Bytes least, Bytes) { return least; });
  free_all(allocate_many(64, mebibytes(4)), mebibytes(4));
  const auto trimmed = engine_->trim(mebibytes(20));
  ASSERT_TRUE(succeeded(trimmed));
  EXPECT_GE(*trimmed, mebibytes(20));
  EXPECT_LT(*trimmed, mebibytes(256));
  EXPECT_EQ(backing_.committed(), mebibytes(256) - *trimmed);
}

TEST_F(GivingBack, TrimWaitsForTheWorkOnWhatItGives) {
  const Address at = allocate(mebibytes(64));
  const auto used = streams_.give(kOne);
  free(at, mebibytes(64));
  const auto trimmed = engine_->trim(kAll);
  ASSERT_TRUE(succeeded(trimmed));
  EXPECT_EQ(backing_.committed(), Bytes{});
  EXPECT_TRUE(streams_.is_known_reached(used));
}

TEST_F(GivingBack, TrimTakesWhatOtherThreadsHaveCached) {
  std::barrier meeting(2);
  std::thread other([&] {
    for (const Bytes bytes : {Bytes{300}, Bytes{5000}, Bytes{40'000}, Bytes{700'000}}) {
      free_all(allocate_many(20, bytes, kTwo), bytes, kTwo);
    }
    meeting.arrive_and_wait();
    meeting.arrive_and_wait();
    free(allocate({300}, kTwo), {300}, kTwo);  // goes on as before
  });
  meeting.arrive_and_wait();
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), Bytes{});
  meeting.arrive_and_wait();
  other.join();
}

TEST_F(GivingBack, TrimWhileAnotherThreadUsesItsCacheTakesNothingInUse) {
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([this, i, &ends] {
      while (!ends) {
        const Bytes bytes{300 + 1000 * i};
        const StreamHandle on = i % 2 == 0 ? nullptr : stream(i);
        free_all(allocate_many(20, bytes, on), bytes, on);
      }
    });
  }
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  ends = true;
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), Bytes{});
}

TEST_F(GivingBack, ThreadThatEndsLeavesItsCacheToTheOthers) {
  std::thread([this] {
    free_all(allocate_many(100, {512}, nullptr), {512}, nullptr);
    EXPECT_GT(statistics().cached, Bytes{}) << "there is something to leave";
  }).join();
  EXPECT_EQ(statistics().cached, Bytes{});
  const auto committed = backing_.committed();
  allocate_many(100, {512});
  EXPECT_EQ(backing_.committed(), committed);
}

TEST_F(GivingBack, BatchesBetweenCachesServeOthersBeforeMoreIsRequested) {
  free_all(allocate_many(64, kibibytes(64), nullptr), kibibytes(64), nullptr);
  EXPECT_EQ(statistics().cached, mebibytes(4)) << "more than one cache holds of a size";
  const auto committed = backing_.committed();
  allocate_many(48, kibibytes(64), kTwo);
  EXPECT_EQ(backing_.committed(), committed);
}

TEST_F(GivingBack, SurplusIsWhatAPressureCouldHave) {
  EXPECT_EQ(engine_->surplus(), Bytes{});
  burst(mebibytes(300));
  const Bytes surplus = engine_->surplus();
  EXPECT_GE(surplus, mebibytes(290));
  EXPECT_LE(surplus, backing_.committed());
  const auto trimmed = engine_->trim(surplus);
  ASSERT_TRUE(succeeded(trimmed));
  EXPECT_GE(*trimmed, surplus);
  free(live_, mebibytes(10));
}

TEST_F(GivingBack, CloseIsRefusedWhileABlockIsInUseAndGivesEverythingBackThen) {
  const Address at = allocate({1000});
  const auto refused = engine_->close();
  EXPECT_TRUE(failed_with(refused, Code::kFailedPrecondition));
  EXPECT_TRUE(succeeded(engine_->allocate({1000}, kOne))) << "nothing has changed";
  free(snapshot().at(0).address, kUnknownSize);
  free(snapshot().at(0).address, kUnknownSize);
  EXPECT_TRUE(succeeded(engine_->close()));
  EXPECT_EQ(backing_.committed(), Bytes{});
  static_cast<void>(at);
}

TEST_F(GivingBack, DestroyedEngineGivesBlocksInUseBackAndWaitsForTheWorkOnFreedOnes) {
  allocate(mebibytes(20));
  const Address at = allocate(mebibytes(30));
  const auto used = streams_.give(kOne);
  free(at, mebibytes(30));
  engine_.reset();
  EXPECT_EQ(backing_.committed(), Bytes{});
  EXPECT_TRUE(streams_.is_known_reached(used));
}

TEST_F(GivingBack, ClosingWaitsForWorkThatNoMarkCovers) {
  const Address at = allocate(mebibytes(8));
  const auto work = streams_.give(kOne);
  streams_.fail(FakeStreams::Call::kMark, 1, {Code::kFailedPrecondition, "a graph is being captured"});
  free(at, mebibytes(8));
  EXPECT_TRUE(streams_.heal());
  EXPECT_FALSE(streams_.is_known_reached(work));
  EXPECT_TRUE(succeeded(engine_->close()));
  EXPECT_TRUE(streams_.is_known_reached(work));
}

TEST_F(GivingBack, ClosingWaitsForAllWorkIfOneMarkCannotBeWaitedFor) {
  const Address at = allocate(mebibytes(8));
  const auto work = streams_.give(kOne);
  free(at, mebibytes(8));
  streams_.fail(FakeStreams::Call::kWait, 1);
  EXPECT_TRUE(succeeded(engine_->close()));
  EXPECT_TRUE(streams_.is_known_reached(work));
}

TEST(Closing, KeepsWhatWorkMayStillUseIfThatCannotBeWaitedFor) {
  static FakeBacking backing;  // never ended, as what it has lent
  FakeStreams streams;
  Engine engine(borrow(backing), borrow(streams), {.background_task = false});
  const Address used = engine.allocate(mebibytes(8), kOne).value();
  const Address unused = engine.allocate(mebibytes(8), kTwo).value();
  streams.give(kOne);
  streams.fail(FakeStreams::Call::kMark, 1, {Code::kFailedPrecondition, "a graph is being captured"});
  EXPECT_TRUE(succeeded(engine.deallocate(used, mebibytes(8), kOne)));
  EXPECT_TRUE(succeeded(engine.deallocate(unused, mebibytes(8), kTwo)));
  streams.fail(FakeStreams::Call::kWaitForContexts, 1, {Code::kFailedPrecondition, "a capture goes on"});
  const auto closed = engine.close();
  EXPECT_TRUE(failed_with(closed, Code::kFailedPrecondition));
  EXPECT_NE(closed.error().message.find("8MiB stay mapped"), std::string::npos) << closed.error().message;
  EXPECT_FALSE(backing.mapped_at(used, mebibytes(8)).empty());
  EXPECT_TRUE(backing.mapped_at(unused, mebibytes(8)).empty());
  EXPECT_TRUE(failed_with(engine.close(), Code::kFailedPrecondition)) << "it is closed";
}

TEST(BackgroundTick, GivesIdleMemoryBackByItself) {
  FakeBacking backing;
  FakeStreams streams;
  Engine engine(borrow(backing), borrow(streams), {.idle = milliseconds(50)});
  const auto at = engine.allocate(mebibytes(64), kOne);
  ASSERT_TRUE(at.has_value());
  ASSERT_TRUE(engine.deallocate(*at, mebibytes(64), kOne).has_value());
  EXPECT_TRUE(gpumem::test::eventually([&] { return backing.committed().is_zero(); }));
}

}  // namespace
}  // namespace gpumem::allocator::test
