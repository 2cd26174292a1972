// Slices on the simulated driver, lent to by a broker that the tests play.
#include "gpumem/slice.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <future>
#include <thread>

#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

TEST_F(SliceTest, OpensOnTheFirstDeviceThatBothSidesSee) {
  const Slice slice = open();
  EXPECT_EQ(slice.ordinal(), 0);
  EXPECT_EQ(slice.granularity(), kPage);
  EXPECT_EQ(slice.limit(), mebibytes(32));
  EXPECT_EQ(slice.committed(), Bytes{});
  EXPECT_NE(slice.base(), 0U);
}

TEST_F(SliceTest, OpensOnTheDeviceThatIsNamed) {
  const Slice first = open();
  EXPECT_EQ(open({first.device(), {}, ""}).device(), first.device());
  EXPECT_EQ(session_->open_slice({"GPU-00000000-0000-0000-0000-000000000000", {}, ""}).error().code,
            Code::kNotFound);
  EXPECT_EQ(session_->open_slice({"GPU-11111111-0000-0000-0000-000000000000", {}, ""}).error().code,
            Code::kNotFound);
  EXPECT_EQ(session_->open_slice({"nonsense", {}, ""}).error().code, Code::kInvalidArgument);
}

TEST_F(SliceTest, IsClosedAgainWhenThereAreNoAddresses) {
  auto slice = session_->open_slice({"", {std::uint64_t{1} << 62}, ""});
  ASSERT_FALSE(slice);
  EXPECT_EQ(broker_.slices_open(), 0U);
}

TEST_F(SliceTest, IsClosedAgainWhenNobodyCanListenForTheBroker) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  { const Slice starts_the_driver = open(); }
  session_.reset();  // and with it the library's thread
  FakeBroker other;
  auto session = Session::connect({other.folder(), "test", std::chrono::seconds(20)});
  ASSERT_TRUE(session);
  const rlimit no_more{static_cast<rlim_t>(UniqueFd(::dup(0)).get()), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &no_more), 0);
  const auto slice = session->open_slice();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(slice);
  EXPECT_EQ(slice.error().code, Code::kResourceExhausted) << slice.error().message;
  EXPECT_EQ(other.slices_open(), 0U);
  EXPECT_TRUE(session->open_slice()) << "the next one has its thread";
}

TEST_F(SliceTest, GrowsToItsTargetRoundedUp) {
  Slice slice = open();
  auto grown = slice.grow({kPage.count * 3 - 5});
  ASSERT_TRUE(grown) << to_string(grown.error());
  EXPECT_EQ(*grown, mebibytes(6));
  EXPECT_EQ(slice.committed(), mebibytes(6));
  EXPECT_TRUE(is_usable(slice));
  broker_.await_accepted(1);
}

TEST_F(SliceTest, AsksOnlyForWhatIsMissing) {
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(4)));
  ASSERT_TRUE(slice.grow(mebibytes(4)));
  EXPECT_EQ(broker_.growths(), 1U);
  ASSERT_TRUE(slice.grow(mebibytes(8)));
  EXPECT_EQ(broker_.leases_out(), 4U);
  EXPECT_TRUE(is_usable(slice));
}

TEST_F(SliceTest, RefusesATargetThatOverflowsWithoutAskingTheBroker) {
  Slice slice = open();
  EXPECT_EQ(slice.grow({~std::uint64_t{0}}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(broker_.growths(), 0U);
}

TEST_F(SliceTest, ShrinksByWholeExtentsFromTheEnd) {
  broker_.extent_sizes = {8 << 20, 4 << 20, 2 << 20};
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(14)));
  EXPECT_EQ(*slice.shrink(mebibytes(13)), mebibytes(14));
  EXPECT_EQ(*slice.shrink(mebibytes(9)), mebibytes(12));
  EXPECT_EQ(*slice.shrink(mebibytes(8)), mebibytes(8));
  EXPECT_EQ(broker_.leases_out(), 1U);
  EXPECT_TRUE(is_usable(slice));
  EXPECT_EQ(*slice.shrink({}), Bytes{});
  EXPECT_EQ(broker_.leases_out(), 0U);
  EXPECT_EQ(broker_.in_use(), 0U);
}

TEST_F(SliceTest, ReleasesAtLeastWhatIsNamedInWholeExtents) {
  broker_.extent_sizes = {8 << 20, 4 << 20, 2 << 20};
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(14)));
  EXPECT_EQ(*slice.release({}), Bytes{});
  EXPECT_EQ(*slice.release(mebibytes(1)), mebibytes(2));
  EXPECT_EQ(*slice.release(mebibytes(1), mebibytes(9)), Bytes{}) << "the next extent is not to spare";
  EXPECT_EQ(*slice.release(mebibytes(5), mebibytes(8)), mebibytes(4)) << "as far as it goes";
  EXPECT_EQ(slice.committed(), mebibytes(8));
  EXPECT_TRUE(is_usable(slice));
}

TEST_F(SliceTest, ShrinksOverSeveralGrantsAndGrowsAgain) {
  Slice slice = open();
  for (std::uint64_t size = 4; size <= 16; size += 4) ASSERT_TRUE(slice.grow(mebibytes(size)));
  EXPECT_EQ(*slice.shrink(mebibytes(5)), mebibytes(6));
  EXPECT_EQ(*slice.grow(mebibytes(20)), mebibytes(20));
  EXPECT_TRUE(is_usable(slice));
  EXPECT_EQ(broker_.in_use(), mebibytes(20).count);
}

TEST_F(SliceTest, ThatGoesGivesEverythingBack) {
  {
    Slice slice = open();
    ASSERT_TRUE(slice.grow(mebibytes(8)));
  }
  EXPECT_EQ(broker_.leases_out(), 0U);
  EXPECT_EQ(broker_.slices_open(), 0U);
  EXPECT_EQ(broker_.in_use(), 0U);
}

TEST_F(SliceTest, OutlivesItsSessionObject) {
  Slice slice = open();
  session_.reset();
  ASSERT_TRUE(slice.grow(mebibytes(2)));
  EXPECT_TRUE(is_usable(slice));
}

TEST_F(SliceTest, TellsWhyMemoryWasDenied) {
  broker_.refuse_growth = [](const FakeBroker::IsCancelled&) {
    lane::Failed body = failed(Code::kDeadlineExceeded, "waited 5s in vain");
    body.denial.reason = 4;
    body.denial.waiters_ahead = 2;
    return body;
  };
  Slice slice = open();
  auto grown = slice.grow(mebibytes(2));
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(grown.error().message, "waited 5s in vain");
  ASSERT_TRUE(grown.error().denial);
  EXPECT_EQ(grown.error().denial->reason, Denial::Reason::kNoMemory);
  EXPECT_EQ(grown.error().denial->waiters_ahead, 2U);
  EXPECT_EQ(slice.committed(), Bytes{});
}

TEST_F(SliceTest, ReturnsAGrantWhoseSizesAreWrong) {
  Slice slice = open();
  broker_.tamper = [](std::vector<lane::GrantedLease>& leases) { leases[0].size = 4 << 20; };
  EXPECT_EQ(slice.grow(mebibytes(4)).error().code, Code::kInternal);
  EXPECT_EQ(slice.committed(), Bytes{});
  EXPECT_EQ(broker_.leases_out(), 0U);
  EXPECT_EQ(broker_.in_use(), 0U);
}

TEST_F(SliceTest, RejectsAGrantThatNamesALeaseTwice) {
  Slice slice = open();
  broker_.tamper = [](std::vector<lane::GrantedLease>& leases) { leases[1].lease = leases[0].lease; };
  EXPECT_EQ(slice.grow(mebibytes(4)).error().code, Code::kInternal);
  EXPECT_EQ(slice.committed(), Bytes{});
  broker_.tamper = nullptr;
  EXPECT_EQ(*slice.grow(mebibytes(4)), mebibytes(4));
  EXPECT_TRUE(is_usable(slice));
}

TEST_F(SliceTest, ShrinksEvenIfTheBrokerIsGone) {
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(8)));
  broker_.hang_up();
  EXPECT_TRUE(is_usable(slice));
  EXPECT_EQ(slice.shrink(mebibytes(4)).error().code, Code::kUnavailable);
  EXPECT_EQ(slice.committed(), mebibytes(4));
  EXPECT_TRUE(is_usable(slice));
  EXPECT_EQ(slice.grow(mebibytes(8)).error().code, Code::kUnavailable);
}

TEST_F(SliceTest, TellsTheBrokerLaterWhatItCouldNotBeToldAtOnce) {
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(8)));
  broker_.refuse_return = [] { return failed(Code::kUnavailable, "busy"); };
  EXPECT_FALSE(slice.shrink(mebibytes(4)));
  EXPECT_EQ(broker_.leases_out(), 4U);
  broker_.refuse_return = nullptr;
  ASSERT_TRUE(slice.shrink(mebibytes(4)));
  EXPECT_EQ(broker_.leases_out(), 2U);
}

TEST_F(SliceTest, AReturnWhoseAnswerWasLostDoesNotHoldUpTheNext) {
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(8)));
  broker_.refuse_return = [] { return failed(Code::kUnavailable, "lost"); };
  EXPECT_FALSE(slice.shrink(mebibytes(4)));
  broker_.refuse_return = [first = true]() mutable -> std::optional<lane::Failed> {
    if (std::exchange(first, false)) return failed(Code::kNotFound, "not on loan");
    return std::nullopt;
  };
  EXPECT_TRUE(slice.shrink(mebibytes(2)));
  EXPECT_EQ(broker_.leases_out(), 3U)
      << "the two of the lost answer, which this broker has kept, and the one in use";
}

TEST_F(SliceTest, ShrinksWhileAGrowthWaitsAndTheGrowthStillReachesItsTarget) {
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(4)));
  std::promise<void> asked;
  std::promise<void> shrunk;
  broker_.before_grant = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    asked.set_value();
    shrunk.get_future().wait();
  };
  std::thread grower([&] { EXPECT_EQ(*slice.grow(mebibytes(8), {std::chrono::seconds(5)}), mebibytes(8)); });
  asked.get_future().wait();
  EXPECT_EQ(*slice.shrink({}), Bytes{});
  shrunk.set_value();
  grower.join();
  EXPECT_EQ(slice.committed(), mebibytes(8));
  EXPECT_TRUE(is_usable(slice));
}

TEST_F(SliceTest, GrowthsOfSeveralThreadsDoNotMixTheirOffers) {
  std::vector<Slice> slices;
  for (int i = 0; i < 4; ++i) slices.push_back(open());
  std::vector<std::thread> threads;
  for (Slice& slice : slices) {
    threads.emplace_back([&slice] {
      for (int round = 0; round < 10; ++round) {
        EXPECT_TRUE(slice.grow(mebibytes(6)));
        EXPECT_TRUE(slice.shrink(mebibytes(2)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broker_.leases_out(), 4U);
  for (const Slice& slice : slices) EXPECT_TRUE(is_usable(slice));
}

}  // namespace
}  // namespace gpumem::client::test
