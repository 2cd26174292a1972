// Out of memory is an answer, after everything that is cached here was tried, with the broker's words.
#include <barrier>
#include <functional>
#include <future>
#include <new>
#include <stop_token>
#include <utility>

#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

using std::chrono::seconds;

struct Refusal : EngineTest {
  explicit Refusal(const EngineOptions& options = {.background_task = false})
      : EngineTest({.limit = mebibytes(64)}, options) {}
};

TEST_F(Refusal, CarriesTheBrokersDenial) {
  backing_.set_available(Bytes{});
  const auto refused = engine_->allocate(mebibytes(4), kOne);
  ASSERT_TRUE(failed_with(refused, Code::kResourceExhausted));
  ASSERT_TRUE(refused.error().denial.has_value());
  EXPECT_EQ(refused.error().denial->reason, Denial::Reason::kNoMemory);
  ASSERT_EQ(refused.error().denial->holders.size(), 1U);
  EXPECT_EQ(refused.error().denial->holders[0].pid, 4711);
  EXPECT_EQ(refused.error().denial->asked_least, mebibytes(4));
}

TEST_F(Refusal, AtTheLimitIsOneOfMemoryNotOfTheArgument) {
  allocate(mebibytes(40));
  const auto refused = engine_->allocate(mebibytes(40), kOne);
  ASSERT_TRUE(failed_with(refused, Code::kResourceExhausted));
  EXPECT_TRUE(refused.error().denial.has_value());
}

TEST_F(Refusal, ChangesNothing) {
  const auto kept = allocate_many(5, mebibytes(12));
  const auto before = statistics();
  EXPECT_FALSE(engine_->allocate(mebibytes(12), kOne).has_value());
  EXPECT_EQ(statistics().in_use, before.in_use);
  EXPECT_EQ(statistics().allocations, before.allocations);
  EXPECT_GT(statistics().refused, before.refused);
  EXPECT_EQ(snapshot().size(), 5U);
  free_all(kept, mebibytes(12));
}

TEST_F(Refusal, ComesOnlyAfterAllThatIsFreeWasMovedTogether) {
  backing_.on_grant([](Bytes least, Bytes) { return least; });
  const auto all = allocate_many(32, mebibytes(2));
  for (std::size_t i = 0; i < all.size(); i += 2) free(all[i], mebibytes(2), kTwo);
  EXPECT_TRUE(succeeded(engine_->allocate(mebibytes(32), kThree)));
  EXPECT_TRUE(failed_with(engine_->allocate(mebibytes(2), kThree), Code::kResourceExhausted));
}

TEST_F(Refusal, ComesOnlyAfterTheThreadsCachesWereGivenUp) {
  std::barrier meeting(3);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 1; i <= 2; ++i) {
    threads.emplace_back([this, i, &meeting] {
      const Bytes bytes{2000 * i};
      free_all(allocate_many(5000, bytes, stream(i)), bytes, stream(i));
      meeting.arrive_and_wait();
      meeting.arrive_and_wait();
    });
  }
  meeting.arrive_and_wait();
  const auto whole = engine_->allocate(mebibytes(64), kThree);
  EXPECT_TRUE(succeeded(whole)) << "nobody uses anything";
  meeting.arrive_and_wait();
  for (auto& thread : threads) thread.join();
}

TEST_F(Refusal, ComesOnlyAfterTheWorkOnWhatIsFreeWasWaitedFor) {
  for (std::uint64_t i = 1; i <= 8; ++i) {
    const Address at = allocate(mebibytes(8), stream(i));
    streams_.give(stream(i));
    free(at, mebibytes(8), stream(i));
  }
  EXPECT_TRUE(succeeded(engine_->allocate(mebibytes(64), stream(9))));
}

// A slab of a stream on which nothing was ever freed: there is no mark to wait for.
TEST_F(Refusal, ComesOnlyAfterSlabsWhoseBlocksOtherStreamsFreedWereGivenUp) {
  const Address at = allocate({1000}, kOne);
  free(at, {1000}, kTwo);
  EXPECT_TRUE(succeeded(engine_->allocate(mebibytes(64), kThree)));
}

TEST_F(Refusal, OfTheBrokersOwnIsPassedOn) {
  for (const Code code : {Code::kUnavailable, Code::kUnauthenticated, Code::kInternal}) {
    backing_.fail(FakeBacking::Call::kObtain, 1, {code, "the broker's words"}, 10);
    const auto failed = engine_->allocate(mebibytes(4), kOne);
    EXPECT_TRUE(failed_with(failed, code));
    EXPECT_NE(failed.error().message.find("the broker's words"), std::string::npos) << failed.error().message;
    backing_.heal();
    const Address at = allocate(mebibytes(4));
    free(at, mebibytes(4));
    EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  }
}

TEST_F(Refusal, LeavesSmallBlocksThatFitServed) {
  allocate(mebibytes(60));
  EXPECT_FALSE(engine_->allocate(mebibytes(10), kOne).has_value());
  EXPECT_TRUE(succeeded(engine_->allocate({4000}, kOne)));
  EXPECT_TRUE(succeeded(engine_->allocate(mebibytes(1), kOne)));
}

TEST_F(Refusal, OfHostMemoryDuringAGrowthLeavesTheNextOneItsTurn) {
  backing_.on_obtain([](const Backing::Request&) { throw std::bad_alloc(); });
  EXPECT_THROW((void)engine_->allocate(mebibytes(4), kOne), std::bad_alloc);
  backing_.on_obtain({});
  const Address at = allocate(mebibytes(4));
  backing_.on_obtain([](const Backing::Request&) { throw std::bad_alloc(); });
  EXPECT_THROW((void)engine_->extend(at, mebibytes(4), mebibytes(8), kOne), std::bad_alloc);
  backing_.on_obtain({});
  EXPECT_TRUE(succeeded(engine_->extend(at, mebibytes(4), mebibytes(8), kOne)));
  free(at, mebibytes(8));
}

TEST_F(Refusal, OfHostMemoryDuringAGrowthLeavesTheAddressesOfTheBlocksRoom) {
  backing_.on_obtain([](const Backing::Request&) { throw std::bad_alloc(); });
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW((void)engine_->allocate(mebibytes(4), kOne, {.room = mebibytes(200)}), std::bad_alloc);
  }
  backing_.on_obtain({});
  free(allocate(mebibytes(4), kOne, {.room = mebibytes(200)}), mebibytes(4));
}

struct WaitingRefusal : Refusal {
  WaitingRefusal() : Refusal({.wait = seconds(3), .background_task = false}) {}

  /// Takes all memory with blocks of a slot's size.
  std::vector<Address> take_all_slots(StreamHandle on) {
    backing_.on_grant([](Bytes least, Bytes) { return least; });
    std::vector<Address> all = {allocate(kSlot, on)};
    backing_.set_available(Bytes{});
    for (;;) {
      const auto got = engine_->allocate(kSlot, on, {}, {.wait = milliseconds(0)});
      if (!got) return all;
      all.push_back(*got);
    }
  }
  /// An allocation waits for memory, until `frees` has been called.
  void waits_until(Bytes bytes, const std::function<void()>& frees) {
    std::promise<void> waiting;
    bool waits = false;
    backing_.on_obtain([&](const Backing::Request& request) {
      if (request.wait.count() == 0 || std::exchange(waits, true)) return;
      std::promise<void> called_off;
      const std::stop_callback heard(request.stop, [&] { called_off.set_value(); });
      waiting.set_value();
      EXPECT_EQ(called_off.get_future().wait_for(seconds(20)), std::future_status::ready);
    });
    std::thread thread([&] { EXPECT_TRUE(succeeded(engine_->allocate(bytes, kOne))); });
    waiting.get_future().wait();
    frees();
    thread.join();
    backing_.on_obtain({});
  }
  static constexpr Bytes kSlot{1000};
};

TEST_F(WaitingRefusal, ComesAfterTheBrokerWaitedAsAllowed) {
  backing_.set_available(Bytes{});
  const auto refused = engine_->allocate(mebibytes(4), kOne);
  ASSERT_TRUE(failed_with(refused, Code::kDeadlineExceeded));
  ASSERT_TRUE(refused.error().denial.has_value());
  const auto wait = backing_.requests().back().wait;
  EXPECT_TRUE(backing_.requests().front().is_probe) << "it is one request of the program";
  EXPECT_FALSE(backing_.requests().back().is_probe);
  EXPECT_EQ(refused.error().denial->waited, wait);
  EXPECT_LE(wait, seconds(3));
  EXPECT_GT(wait, seconds(2)) << "less is left of it by what the call has taken so far, on a busy machine";
}

TEST_F(WaitingRefusal, OfHostMemoryEndsTheWait) {
  backing_.set_available(Bytes{});
  backing_.on_obtain([](const Backing::Request& request) {
    if (request.wait.count() != 0) throw std::bad_alloc();
  });
  EXPECT_THROW((void)engine_->allocate(mebibytes(4), kOne), std::bad_alloc);
  backing_.on_obtain({});
  backing_.set_available(std::nullopt);
  free(allocate(mebibytes(4)), mebibytes(4));
  EXPECT_TRUE(succeeded(engine_->close())) << "nobody waits any more";
}

TEST_F(WaitingRefusal, NobodyWaitsForTheBrokerForWhatIsCachedHere) {
  const auto all = allocate_many(1000, {60'000});
  free_all(all, {60'000});
  backing_.set_available(Bytes{});
  const Bytes there = backing_.committed().rounded_down(mebibytes(2));
  EXPECT_TRUE(succeeded(engine_->allocate(there, kTwo)));
  for (const auto& request : backing_.requests()) {
    EXPECT_TRUE(request.min_bytes + mebibytes(2) <= there || request.wait.count() == 0);
  }
}

TEST_F(WaitingRefusal, NobodyWaitsForASlotThatAnotherThreadHasCached) {
  const auto all = take_all_slots(nullptr);
  std::barrier meeting(2);
  std::thread other([&] {
    for (std::size_t i = 0; i < all.size(); i += 100) free(all[i], kSlot, nullptr);
    meeting.arrive_and_wait();
    meeting.arrive_and_wait();
  });
  meeting.arrive_and_wait();
  EXPECT_TRUE(succeeded(engine_->allocate(kSlot, nullptr)));
  for (const auto& request : backing_.requests()) EXPECT_EQ(request.wait.count(), 0);
  meeting.arrive_and_wait();
  other.join();
}

TEST_F(WaitingRefusal, EndsWhenASlotIsFreed) {
  const auto all = take_all_slots(kOne);
  waits_until(kSlot, [&] { free(all[0], kSlot); });
}

TEST_F(WaitingRefusal, EndsWhenABlockBecomesShorter) {
  const Address held = allocate(mebibytes(60));
  streams_.give(kOne);
  backing_.set_available(Bytes{});
  waits_until(mebibytes(40),
              [&] { EXPECT_TRUE(succeeded(engine_->extend(held, mebibytes(60), mebibytes(10), kOne))); });
}

TEST_F(WaitingRefusal, EndsWhenTheDeviceHasFinishedWithWhatIsFree) {
  const Address held = allocate(mebibytes(40));
  EXPECT_TRUE(succeeded(engine_->record_stream(held, kTwo)));
  streams_.give(kTwo);
  backing_.set_available(Bytes{});
  engine_->background_tick(now_);
  std::promise<void> waiting;
  backing_.on_obtain([&](const Backing::Request& request) {
    if (request.wait.count() == 0) return;
    std::promise<void> called_off;
    const std::stop_callback heard(request.stop, [&] { called_off.set_value(); });
    waiting.set_value();
    EXPECT_EQ(called_off.get_future().wait_for(seconds(60)), std::future_status::ready);
  });
  std::thread waits([this] { EXPECT_TRUE(succeeded(engine_->allocate(mebibytes(40), kThree))); });
  waiting.get_future().wait();
  free(held, mebibytes(40));
  streams_.finish_all();
  engine_->background_tick(now_);  // long before idle memory is looked at again
  waits.join();
  backing_.on_obtain({});
}

TEST_F(WaitingRefusal, OthersAreServedWhileOneWaits) {
  const Address cached = allocate(mebibytes(8));
  free(cached, mebibytes(8));
  std::barrier meeting(2);
  backing_.on_obtain([&](const Backing::Request& request) {
    if (request.min_bytes < mebibytes(50)) return;
    meeting.arrive_and_wait();
    meeting.arrive_and_wait();
  });
  std::thread waits([this] { EXPECT_TRUE(succeeded(engine_->allocate(mebibytes(60), kTwo))); });
  meeting.arrive_and_wait();
  free(allocate({500}, kThree), {500}, kThree);
  const auto found = statistics();
  EXPECT_EQ(found.in_use, Bytes{});
  EXPECT_TRUE(succeeded(engine_->snapshot()));
  meeting.arrive_and_wait();
  waits.join();
  backing_.on_obtain({});
}

}  // namespace
}  // namespace gpumem::allocator::test
