// The fakes hold an engine to its ports' rules, and know which work comes after which.
#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

using Mark = StreamPort::Mark;

struct FakeMemory : testing::Test {
  std::vector<Extent> obtain(Bytes bytes) {
    return backing_.obtain({.bytes = bytes, .min_bytes = bytes, .largest = {}}).value();
  }
  FakeBacking backing_{{.limit = mebibytes(64)}};
  const Address base_ = backing_.properties().base;
};

TEST_F(FakeMemory, ComesInTheBrokersExtentsLargestFirst) {
  const auto extents = obtain(mebibytes(46));
  ASSERT_EQ(extents.size(), 5U);
  EXPECT_EQ(extents[0].size, mebibytes(32));
  EXPECT_EQ(extents[1].size, mebibytes(8));
  EXPECT_EQ(extents[2].size, mebibytes(2));
  EXPECT_EQ(
      backing_.obtain({.bytes = mebibytes(8), .min_bytes = mebibytes(8), .largest = mebibytes(2)})->size(),
      4U);
  const auto refused = backing_.obtain({.bytes = mebibytes(12), .min_bytes = mebibytes(12), .largest = {}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().denial->reason, Denial::Reason::kSliceLimit);
  EXPECT_EQ(backing_.obtain({.bytes = mebibytes(12), .min_bytes = mebibytes(2), .largest = {}})->size(), 2U)
      << "what there is";
  EXPECT_EQ(backing_.committed(), mebibytes(64));
  backing_.give_back(extents);
}

TEST_F(FakeMemory, EndsTheProgramWhereARuleOfThePortIsBroken) {
  const auto extents = obtain(mebibytes(10));
  const std::vector<Extent> twice{extents[0], extents[0]};
  EXPECT_DEATH(static_cast<void>(backing_.map(base_, twice)), "twice in one call");
  EXPECT_DEATH(static_cast<void>(backing_.map(base_ + 4096, extents)), "no multiple");
  EXPECT_DEATH(static_cast<void>(backing_.map(base_ - mebibytes(2).count, extents)), "outside");
  ASSERT_TRUE(backing_.map(base_, extents).has_value());
  const auto more = obtain(mebibytes(2));
  EXPECT_DEATH(static_cast<void>(backing_.map(base_ + mebibytes(2).count, more)), "within another");
  ASSERT_TRUE(backing_.map(base_ + mebibytes(32).count, extents).has_value()) << "at two places";
  ASSERT_TRUE(backing_.unmap(base_ + mebibytes(32).count, mebibytes(10)).has_value());
  EXPECT_DEATH(static_cast<void>(backing_.unmap(base_ + mebibytes(2).count, mebibytes(2))), "does not begin");
  EXPECT_DEATH(static_cast<void>(backing_.unmap(base_, mebibytes(4))), "cut");
  EXPECT_DEATH(static_cast<void>(backing_.unmap(base_, mebibytes(12))), "hole");
  EXPECT_DEATH(backing_.give_back(extents), "is mapped");
  EXPECT_DEATH(backing_.give_back({{4711, mebibytes(2)}}), "is not held");
  ASSERT_TRUE(backing_.unmap(base_, mebibytes(10)).has_value());
  backing_.give_back(extents);
  EXPECT_DEATH(backing_.give_back(extents), "is not held");
}

struct FakeWork : testing::Test {
  FakeWork() {
    for (const StreamHandle one : {kOne, kTwo, kThree}) EXPECT_TRUE(streams_.meet(one).has_value());
  }
  bool reached(Mark mark) { return streams_.ask(mark) == FakeStreams::Progress::kReached; }

  FakeStreams streams_;
};

TEST_F(FakeWork, IsOrderedByMarksAlsoThroughAThirdStream) {
  const auto first = streams_.give(kOne);
  const Mark one = streams_.mark(kOne).value();
  const auto later = streams_.give(kOne);
  ASSERT_TRUE(streams_.order(kTwo, one).has_value());
  const Mark two = streams_.mark(kTwo).value();
  EXPECT_TRUE(streams_.is_behind(kTwo, first));
  EXPECT_FALSE(streams_.is_behind(kTwo, later));
  EXPECT_FALSE(streams_.is_behind(kThree, first));
  ASSERT_TRUE(streams_.order(kThree, two).has_value());
  EXPECT_TRUE(streams_.is_behind(kThree, first));
  EXPECT_FALSE(reached(two)) << "it is behind work that is not over";
  EXPECT_FALSE(streams_.is_known_reached(first));
  streams_.give(kThree);
  streams_.finish(kThree);
  EXPECT_TRUE(reached(one));
  EXPECT_TRUE(streams_.is_known_reached(first));
  EXPECT_FALSE(streams_.is_known_reached(later));
  streams_.drop(one);
  EXPECT_DEATH(streams_.drop(one), "was dropped");
  EXPECT_DEATH(static_cast<void>(streams_.mark(stream(9))), "not met");
}

TEST_F(FakeWork, IsOverOnceItsMarkWasWaitedFor) {
  const auto used = streams_.give(kOne);
  const Mark mark = streams_.mark(kOne).value();
  EXPECT_FALSE(streams_.is_behind(kTwo, used));
  ASSERT_TRUE(streams_.wait(mark).has_value());
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
  EXPECT_TRUE(streams_.is_known_reached(used));
}

TEST_F(FakeWork, OfAForgottenStreamIsNotThatOfANewOneWithItsHandle) {
  const auto used = streams_.give(kOne);
  streams_.end(kOne);
  EXPECT_FALSE(streams_.is_behind(kOne, used));
  EXPECT_DEATH(static_cast<void>(streams_.mark(kOne)), "not met");
}

}  // namespace
}  // namespace gpumem::allocator::test
