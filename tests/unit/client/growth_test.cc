// Growths that are content with less, of several slices at once, or called off.
#include <sys/wait.h>

#include <future>
#include <thread>

#include "tests/support/eventually.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

using gpumem::test::eventually;
using std::chrono::minutes;

struct Growth : SliceTest {
  /// Makes growths wait until their call is cancelled; how many have come so far.
  void wait_until_cancelled() {
    broker_.refuse_growth = [this](const FakeBroker::IsCancelled& is_cancelled) {
      waiting_.set_value();
      while (!is_cancelled()) std::this_thread::yield();
      return failed(Code::kCancelled, "cancelled");
    };
  }
  void await_request() { waiting_.get_future().wait(); }
  lane::GrowPart last_part() const { return broker_.requests().back().parts[0]; }

  std::promise<void> waiting_;
};

TEST_F(Growth, AsksForAllOrNothingUnlessToldWhatIsEnough) {
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(8)));
  EXPECT_EQ(last_part().bytes, mebibytes(8).count);
  EXPECT_EQ(last_part().min_bytes, mebibytes(8).count);
}

TEST_F(Growth, TakesWhatItGetsOnceThatIsEnough) {
  broker_.most = mebibytes(6).count;
  Slice slice = open();
  EXPECT_EQ(*slice.grow(mebibytes(8), {.least = mebibytes(3)}), mebibytes(6));
  EXPECT_EQ(last_part().bytes, mebibytes(8).count);
  EXPECT_EQ(last_part().min_bytes, mebibytes(4).count) << "rounded up";
  EXPECT_EQ(broker_.growths(), 1U) << "it is enough: nothing more is asked for";
  EXPECT_TRUE(is_usable(slice));
}

TEST_F(Growth, IsRefusedWhatIsNotEnough) {
  broker_.most = mebibytes(2).count;
  Slice slice = open();
  EXPECT_EQ(slice.grow(mebibytes(8), {.least = mebibytes(4)}).error().code, Code::kResourceExhausted);
  EXPECT_EQ(slice.committed(), Bytes{});
}

TEST_F(Growth, OfWhatIsEnoughAlreadyAsksOnceWithoutWaiting) {
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(4)));
  broker_.most = 0;
  EXPECT_EQ(*slice.grow(mebibytes(8), {.wait = minutes(1), .least = mebibytes(4)}), mebibytes(4));
  EXPECT_EQ(broker_.growths(), 2U);
  EXPECT_EQ(broker_.requests().back().wait, 0U);
  EXPECT_EQ(last_part().min_bytes, kPage.count);
  broker_.most = mebibytes(2).count;
  EXPECT_EQ(*slice.grow(mebibytes(8), {.least = mebibytes(4)}), mebibytes(6));
  EXPECT_EQ(*slice.grow(mebibytes(6), {.least = mebibytes(2)}), mebibytes(6));
  EXPECT_EQ(broker_.growths(), 3U) << "the target is there: nothing is asked for";
}

TEST_F(Growth, CannotBeContentWithMoreThanItWishes) {
  Slice slice = open();
  EXPECT_EQ(slice.grow(mebibytes(4), {.least = mebibytes(6)}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(broker_.growths(), 0U);
}

TEST_F(Growth, RejectsAGrantOfLessThanWasEnough) {
  Slice slice = open();
  broker_.tamper = [](std::vector<lane::GrantedLease>& leases) { leases.pop_back(); };
  EXPECT_EQ(slice.grow(mebibytes(8), {.least = mebibytes(8)}).error().code, Code::kInternal);
  EXPECT_EQ(slice.committed(), Bytes{});
}

TEST_F(Growth, RejectsAGrantForAnotherSlice) {
  Slice slice = open();
  const Slice other = open();
  broker_.tamper = [](std::vector<lane::GrantedLease>& leases) { ++leases[0].slice; };
  EXPECT_EQ(slice.grow(mebibytes(2)).error().code, Code::kInternal);
  EXPECT_TRUE(eventually([&] { return broker_.leases_out() == 0; }));
}

TEST_F(Growth, OfSeveralSlicesIsOneRequest) {
  Slice first = open({.device = device(0)});
  Slice second = open({.device = device(1)});
  ASSERT_TRUE(first.grow(mebibytes(2)));
  const GrowStep steps[] = {{&second, mebibytes(4)}, {&first, mebibytes(8)}};
  const auto grown = session_->grow_all(steps);
  ASSERT_TRUE(grown) << to_string(grown.error());
  EXPECT_EQ(*grown, (std::vector<Bytes>{mebibytes(4), mebibytes(8)}));
  EXPECT_EQ(broker_.growths(), 2U);
  EXPECT_EQ(broker_.requests().back().count, 2);
  EXPECT_EQ(last_part().bytes, mebibytes(6).count) << "what the first slice lacks";
  EXPECT_TRUE(is_usable(first));
  EXPECT_TRUE(is_usable(second));
  broker_.await_accepted(2);
}

TEST_F(Growth, OfSeveralSlicesIsAllOrNothing) {
  Slice first = open({.device = device(0)});
  Slice second = open({.device = device(1), .limit = mebibytes(8)});
  broker_.tamper = [](std::vector<lane::GrantedLease>& leases) {  // the second part cannot be mapped
    leases.back().size = 1;
  };
  const GrowStep steps[] = {{&first, mebibytes(4)}, {&second, mebibytes(4)}};
  EXPECT_EQ(session_->grow_all(steps).error().code, Code::kInternal);
  EXPECT_EQ(first.committed(), Bytes{});
  EXPECT_EQ(second.committed(), Bytes{});
  broker_.tamper = nullptr;
  EXPECT_TRUE(session_->grow_all(steps));
  EXPECT_TRUE(is_usable(first));
}

// The address range of the second slice is too small for what the broker grants past its limit.
TEST_F(Growth, WhoseLastPartCannotBeMappedLeavesTheFirstUnmapped) {
  Slice first = open({.device = device(0)});
  Slice second = open({.device = device(1), .limit = mebibytes(2)});
  const GrowStep steps[] = {{&first, mebibytes(4)}, {&second, mebibytes(4)}};
  const auto grown = session_->grow_all(steps);
  ASSERT_FALSE(grown);
  EXPECT_EQ(first.committed(), Bytes{});
  EXPECT_EQ(second.committed(), Bytes{});
  EXPECT_EQ(broker_.leases_out(), 0U);
  EXPECT_EQ(broker_.in_use(), 0U);
  EXPECT_EQ(*first.grow(mebibytes(4)), mebibytes(4));
  EXPECT_TRUE(is_usable(first));
}

TEST_F(Growth, OfSeveralSlicesIsContentPartByPart) {
  Slice first = open({.device = device(0)});
  Slice second = open({.device = device(1)});
  broker_.most = mebibytes(4).count;
  const GrowStep steps[] = {{&first, mebibytes(8), mebibytes(2)}, {&second, mebibytes(4)}};
  EXPECT_EQ(*session_->grow_all(steps), (std::vector<Bytes>{mebibytes(4), mebibytes(4)}));
}

TEST_F(Growth, OfSeveralSlicesRefusesWhatIsNoJointGrowth) {
  Slice first = open({.device = device(0)});
  Slice same = open({.device = device(0)});
  const auto refused = [this](std::vector<GrowStep> steps, GrowOptions options = {}) {
    return session_->grow_all(steps, options).error().code == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused({{nullptr, kPage}}));
  EXPECT_TRUE(refused({{&first, kPage}, {&same, kPage}})) << "two of one device";
  EXPECT_TRUE(refused({{&first, kPage}}, {.least = kPage})) << "least is each step's own";
  FakeBroker elsewhere;
  auto other = Session::connect({elsewhere.folder(), "other"});
  auto foreign = other->open_slice();
  EXPECT_TRUE(refused({{&*foreign, kPage}})) << "of another session";
  const Slice moved = std::move(same);
  EXPECT_TRUE(refused({{&same, kPage}})) << "moved from";
  EXPECT_TRUE(session_->grow_all({})->empty());
  EXPECT_EQ(broker_.growths(), 0U);
}

TEST_F(Growth, OfSeveralSlicesInAnyOrderByManyThreadsEnds) {
  Slice first = open({.device = device(0)});
  Slice second = open({.device = device(1)});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) {
        const GrowStep one{&first, mebibytes(6)};
        const GrowStep two{&second, mebibytes(6)};
        const std::vector<GrowStep> steps =
            i % 2 == 0 ? std::vector<GrowStep>{one, two} : std::vector<GrowStep>{two, one};
        EXPECT_TRUE(session_->grow_all(steps));
        EXPECT_TRUE((i % 2 == 0 ? first : second).shrink(mebibytes(2)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(is_usable(first));
  EXPECT_TRUE(is_usable(second));
}

TEST_F(Growth, CanBeCalledOffWhileItWaits) {
  Slice slice = open();
  wait_until_cancelled();
  std::stop_source stop;
  auto grown = std::async(std::launch::async, [&] {
    return slice.grow(mebibytes(4), {.wait = minutes(10), .stop = stop.get_token()});
  });
  await_request();
  stop.request_stop();
  EXPECT_EQ(grown.get().error().code, Code::kCancelled);
  EXPECT_EQ(slice.committed(), Bytes{});
  broker_.refuse_growth = nullptr;
  EXPECT_EQ(*slice.grow(mebibytes(4)), mebibytes(4));
}

TEST_F(Growth, CanBeCalledOffWhileItWaitsForItsTurn) {
  Slice slice = open();
  wait_until_cancelled();
  std::stop_source first_stop;
  std::stop_source second_stop;
  auto first = std::async(std::launch::async, [&] {
    return slice.grow(mebibytes(4), {.wait = minutes(10), .stop = first_stop.get_token()});
  });
  await_request();
  auto second = std::async(std::launch::async, [&] {
    return slice.grow(mebibytes(4), {.wait = minutes(10), .stop = second_stop.get_token()});
  });
  second_stop.request_stop();
  EXPECT_EQ(second.get().error().code, Code::kCancelled);
  first_stop.request_stop();
  EXPECT_EQ(first.get().error().code, Code::kCancelled);
  EXPECT_EQ(broker_.growths(), 1U);
}

TEST_F(Growth, ThatIsCalledOffBeforehandAsksNobody) {
  Slice slice = open();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(slice.grow(mebibytes(4), {.stop = stop.get_token()}).error().code, Code::kCancelled);
  EXPECT_EQ(broker_.growths(), 0U);
}

TEST_F(Growth, CancelledByTheBrokerIsNotTheCallersDoing) {
  Slice slice = open();
  broker_.refuse_growth = [](const FakeBroker::IsCancelled&) { return failed(Code::kCancelled, "stopping"); };
  EXPECT_EQ(slice.grow(mebibytes(4)).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace gpumem::client::test
