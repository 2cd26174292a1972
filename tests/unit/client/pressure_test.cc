// What a session does when the broker asks it for memory.
#include <future>
#include <mutex>

#include "tests/support/eventually.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

using gpumem::test::eventually;
using std::chrono::seconds;

struct PressureTest : SliceTest {
  /// A slice that may be trimmed down to `in_use`, in extents of 2 MiB.
  Slice trimmed(Bytes committed, Bytes in_use, std::size_t ordinal = 0) {
    Slice slice = open({.device = device(ordinal), .trim_on_pressure = true});
    slice.set_in_use(in_use);
    EXPECT_TRUE(slice.grow(committed));
    return slice;
  }
  void await_relief(std::size_t ordinal = 0) {
    EXPECT_TRUE(eventually([&] { return broker_.asked_back(ordinal) == 0; })) << broker_.asked_back(ordinal);
  }
};

TEST_F(PressureTest, IsMetByWhatASliceDoesNotUse) {
  Slice slice = trimmed(mebibytes(16), mebibytes(4));
  broker_.ask_back(mebibytes(5), seconds(1));
  await_relief();
  EXPECT_TRUE(eventually([&] { return slice.committed() == mebibytes(10); })) << "whole extents";
  EXPECT_TRUE(is_usable(slice));
  EXPECT_EQ(broker_.in_use(), mebibytes(10).count);
  EXPECT_EQ(broker_.spent(), 0U);
}

TEST_F(PressureTest, TakesNothingThatIsInUseAndSaysThatThereIsNoMore) {
  Slice slice = trimmed(mebibytes(16), mebibytes(13));
  broker_.ask_back(mebibytes(8), seconds(1));
  broker_.await_spent(1);
  EXPECT_EQ(slice.committed(), mebibytes(14));
  EXPECT_EQ(broker_.asked_back(), mebibytes(6).count);
  EXPECT_TRUE(is_usable(slice));
}

TEST_F(PressureTest, TakesNothingOfASliceThatHasNotAllowedIt) {
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(8)));
  EXPECT_TRUE(slice.set_in_use({}));
  broker_.ask_back(mebibytes(2), seconds(1));
  broker_.await_spent(1);
  EXPECT_EQ(slice.committed(), mebibytes(8));
}

TEST_F(PressureTest, TakesOfTheLargestSurplusFirst) {
  Slice small = trimmed(mebibytes(8), mebibytes(4));
  Slice large = trimmed(mebibytes(12), mebibytes(2));
  broker_.ask_back(mebibytes(8), seconds(1));
  await_relief();
  EXPECT_EQ(small.committed(), mebibytes(8));
  EXPECT_EQ(large.committed(), mebibytes(4));
  broker_.ask_back(mebibytes(5), seconds(2));  // now `large` has the larger surplus, but not enough
  await_relief();
  EXPECT_EQ(small.committed(), mebibytes(4));
  EXPECT_TRUE(eventually([&] { return large.committed() == mebibytes(2); }));
}

TEST_F(PressureTest, OfOneDeviceTakesNothingOfAnother) {
  Slice here = trimmed(mebibytes(8), {}, 0);
  Slice there = trimmed(mebibytes(8), {}, 1);
  broker_.ask_back(mebibytes(8), seconds(1), 1);
  await_relief(1);
  EXPECT_EQ(here.committed(), mebibytes(8));
  EXPECT_EQ(there.committed(), Bytes{});
}

TEST_F(PressureTest, ThatCameBeforeTheFirstSliceIsAnsweredWithIt) {
  broker_.ask_back(mebibytes(2), seconds(1));
  const Slice slice = open();
  broker_.await_spent(1);
}

TEST_F(PressureTest, CallsTheHandlerForWhatTrimmingDoesNotBring) {
  Slice slice = trimmed(mebibytes(8), mebibytes(6));
  std::promise<Pressure> asked;
  ASSERT_TRUE(session_->on_pressure([&](const Pressure& pressure) {
    asked.set_value(pressure);
    return Bytes{};
  }));
  broker_.ask_back(mebibytes(5), seconds(77));
  const Pressure pressure = asked.get_future().get();
  EXPECT_EQ(pressure.device, slice.device());
  EXPECT_EQ(pressure.bytes, mebibytes(3));
  EXPECT_EQ(pressure.deadline, std::chrono::steady_clock::time_point(seconds(77)));
  broker_.await_spent(1);
}

TEST_F(PressureTest, IsOverWhenTheHandlerShrinksASlice) {
  Slice slice = open();
  ASSERT_TRUE(slice.grow(mebibytes(8)));
  ASSERT_TRUE(session_->on_pressure([&](const Pressure& pressure) {
    EXPECT_EQ(*slice.shrink(slice.committed().minus(pressure.bytes)), mebibytes(4));
    return pressure.bytes;
  }));
  broker_.ask_back(mebibytes(4), seconds(1));
  await_relief();
  ASSERT_TRUE(session_->on_pressure({}));
  broker_.ask_back(mebibytes(2), seconds(2));
  broker_.await_spent(1);
  EXPECT_EQ(broker_.spent(), 1U) << "for the second request only";
  EXPECT_EQ(slice.committed(), mebibytes(4));
}

TEST_F(PressureTest, TrimsWhatTheHandlerSaysIsNoLongerInUse) {
  Slice slice = trimmed(mebibytes(8), mebibytes(8));
  ASSERT_TRUE(session_->on_pressure([&](const Pressure& pressure) {
    slice.set_in_use(mebibytes(2));
    return pressure.bytes;
  }));
  broker_.ask_back(mebibytes(4), seconds(1));
  await_relief();
  EXPECT_TRUE(eventually([&] { return slice.committed() == mebibytes(4); }));
}

TEST_F(PressureTest, GoesByThePageNotByWhatTheHandlerExpects) {
  const Slice slice = open();
  ASSERT_TRUE(session_->on_pressure([](const Pressure& pressure) { return pressure.bytes; }));
  broker_.ask_back(mebibytes(4), seconds(1));
  broker_.await_spent(1);
}

TEST_F(PressureTest, HandlerThatThrowsHasGivenNothing) {
  const Slice slice = open();
  ASSERT_TRUE(session_->on_pressure([](const Pressure&) -> Bytes { throw std::runtime_error("no"); }));
  testing::internal::CaptureStderr();
  broker_.ask_back(mebibytes(4), seconds(1));
  broker_.await_spent(1);
  broker_.ask_back(mebibytes(4), seconds(2));
  broker_.await_spent(2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("has thrown: no"), std::string::npos) << said;
  EXPECT_EQ(said.find("thrown"), said.rfind("thrown")) << "once: " << said;
}

TEST_F(PressureTest, ThatIsAnsweredIsAnsweredAgainOnlyWhenItIsAnother) {
  const Slice slice = open();
  std::atomic<int> calls = 0;
  ASSERT_TRUE(session_->on_pressure([&](const Pressure&) {
    ++calls;
    return Bytes{};
  }));
  broker_.ask_back(mebibytes(4), seconds(1));
  broker_.await_spent(1);
  broker_.ring();  // for another device
  broker_.ask_back(mebibytes(2), seconds(9), 1);
  broker_.await_spent(1, 1);
  EXPECT_EQ(broker_.spent(), 1U);
  EXPECT_EQ(calls, 2);
  broker_.ask_back(mebibytes(6), seconds(1));
  broker_.await_spent(2);
  broker_.ask_back(mebibytes(4), seconds(3));
  broker_.await_spent(3);
  EXPECT_EQ(calls, 4);
}

// The answer "no more" would be to the smaller request.
TEST_F(PressureTest, ThatGrowsDuringItsAnswerIsAnsweredAnew) {
  const Slice slice = open();
  std::vector<Bytes> asked;
  ASSERT_TRUE(session_->on_pressure([&](const Pressure& pressure) {
    if (asked.empty()) broker_.ask_back(mebibytes(6), seconds(1));
    asked.push_back(pressure.bytes);
    return Bytes{};
  }));
  broker_.ask_back(mebibytes(4), seconds(1));
  broker_.await_spent(1);
  ASSERT_TRUE(session_->on_pressure({}));
  EXPECT_EQ(asked, (std::vector<Bytes>{mebibytes(4), mebibytes(6)}));
  EXPECT_EQ(broker_.spent(), 1U);
}

TEST_F(PressureTest, ThatIsOverWhenItIsHeardIsNotAnswered) {
  const Slice slice = open();
  broker_.ring();
  broker_.ask_back(mebibytes(4), seconds(1), 1);
  broker_.await_spent(1, 1);
  EXPECT_EQ(broker_.spent(0), 0U);
}

TEST_F(PressureTest, MetWhileTheBrokerIsGoneCostsNothingButTheMemory) {
  Slice slice = trimmed(mebibytes(8), mebibytes(2));
  broker_.hang_up();
  broker_.ask_back(mebibytes(4), seconds(1));
  EXPECT_TRUE(eventually([&] { return slice.committed() < mebibytes(8); }));
  EXPECT_TRUE(is_usable(slice));
}

TEST_F(PressureTest, InUseKeepsWhatIsCommittedAndWhatIsGrownLater) {
  Slice slice = trimmed(mebibytes(4), mebibytes(4));
  EXPECT_FALSE(slice.set_in_use(mebibytes(8))) << "not all of it is there";
  EXPECT_EQ(*slice.grow(mebibytes(8)), mebibytes(8));
  EXPECT_TRUE(slice.set_in_use(mebibytes(8)));
  broker_.ask_back(mebibytes(4), seconds(1));
  broker_.await_spent(1);
  EXPECT_EQ(slice.committed(), mebibytes(8));
}

// Trims race with a program that keeps to the contract: what it has declared is there whenever it looks.
TEST_F(PressureTest, NeverTakesWhatHasBeenDeclaredInUseMeanwhile) {
  Slice slice = trimmed(mebibytes(2), mebibytes(2));
  std::atomic<bool> over = false;
  std::thread asking([&] {
    for (int deadline = 1; !over; ++deadline) {
      broker_.ask_back(mebibytes(16), std::chrono::nanoseconds(deadline));
      std::this_thread::yield();
    }
  });
  for (int round = 0; round < 200; ++round) {
    const Bytes size = mebibytes(2 + 2 * static_cast<std::uint64_t>(round % 7));
    if (!slice.set_in_use(size)) {
      const auto grown = slice.grow(size, {.wait = seconds(5)});
      ASSERT_TRUE(grown) << to_string(grown.error());
    }
    ASSERT_GE(slice.committed(), size);
    *reinterpret_cast<volatile std::uint64_t*>(slice.base() + size.count - 8) = 1;
    slice.set_in_use(mebibytes(2));
  }
  over = true;
  asking.join();
}

TEST_F(PressureTest, ChargeDeclaresMemoryAndIsAnsweredFor) {
  EXPECT_EQ(session_->charge("GPU-x", mebibytes(3)).error().code, Code::kNotFound);
  ASSERT_TRUE(session_->charge(device(0), mebibytes(3)));
  ASSERT_EQ(broker_.charges().size(), 1U);
  EXPECT_EQ(broker_.charges()[0].device, 1U) << "its place in the shared pages";
  EXPECT_EQ(broker_.charges()[0].bytes, mebibytes(3).count);
  broker_.ask_back(mebibytes(3), seconds(1));
  broker_.await_spent(1);
}

}  // namespace
}  // namespace gpumem::client::test
