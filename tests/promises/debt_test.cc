#include "tests/promises/situation.h"

// Whoever uses more than its limit, and who else is touched by it.

namespace gpumem::core::promises {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

// A group of three, which may have 8 GiB.
class Group : public Situation {
 protected:
  static constexpr std::uint32_t kDeclarer = 1;
  static constexpr std::uint32_t kLarge = 2;
  static constexpr std::uint32_t kSmall = 3;

  void SetUp() override {
    begin(ending_policy({parent("lab", {quota({}, gibibytes(8))}),
                         user("declarer", kDeclarer, {quota(gibibytes(1), gibibytes(4))}, "lab"),
                         user("large", kLarge, {quota(gibibytes(2), gibibytes(8))}, "lab"),
                         user("small", kSmall, {quota(gibibytes(2), gibibytes(8))}, "lab")}));
  }
};

TEST_F(Group, DeclarationDoesNotDelaySiblingsClaim) {
  come_with(gibibytes(4), kLarge);
  Process& declarer = come(kDeclarer, {.declares = true});
  const std::int64_t pid = declarer.pid;
  world->declare(declarer, 0, gibibytes(4));
  Process& small = come(kSmall);
  const RequestId claim = world->grow(small, gibibytes(2));
  world->pass(std::chrono::milliseconds(200));
  EXPECT_TRUE(world->is_granted(claim)) << "4 GiB are free";
  world->pass(std::chrono::seconds(30));
  EXPECT_THAT(world->asked_ever(), Each(pid));
  EXPECT_THAT(signalled(), Each(pid));
}

TEST_F(Group, DebtOfDeclaredMemoryIsAskedOfTheDeclarerAlone) {
  come_with(gibibytes(4), kLarge, {.ignores_pressure = true});
  come_with(gibibytes(2), kSmall, {.ignores_pressure = true});
  Process& declarer = come_with(gibibytes(1), kDeclarer, {.ignores_pressure = true, .declares = true});
  const std::int64_t pid = declarer.pid;
  world->declare(declarer, 0, gibibytes(4));
  world->pass(std::chrono::seconds(30));
  EXPECT_THAT(world->asked_ever(), ElementsAre(pid));
  EXPECT_THAT(signalled(), ElementsAre(pid));
}

class TwoDebts : public Situation {
 protected:
  static Policy policy(Bytes of_first, Bytes of_second) {
    return ending_policy(
        {user("first", 1, {quota({}, of_first)}), user("second", 2, {quota({}, of_second)})});
  }
};

TEST_F(TwoDebts, OneThatIsSlowToEndDoesNotDelayTheOther) {
  begin(policy(gibibytes(4), gibibytes(4)));
  const Traits stubborn{.ignores_pressure = true, .ignores_sigterm = true};
  const std::int64_t first = come_with(gibibytes(4), 1, stubborn).pid;
  const std::int64_t second = come_with(gibibytes(4), 2, stubborn).pid;
  ASSERT_TRUE(world->apply(policy(gibibytes(3), gibibytes(3))));
  world->pass(kDeadline + std::chrono::milliseconds(1));
  EXPECT_THAT(signalled(), ElementsAre(first, second));
}

TEST_F(TwoDebts, DebtorsSessionThatCanBeEndedIsEndedInPlaceOfTheUnendable) {
  begin(policy(gibibytes(4), gibibytes(4)));
  come_with(gibibytes(2), 1, {.ignores_pressure = true, .cannot_be_ended = true});
  const std::int64_t endable = come_with(gibibytes(2), 1, {.ignores_pressure = true}).pid;
  ASSERT_TRUE(world->apply(policy(gibibytes(1), gibibytes(4))));
  world->pass(std::chrono::seconds(30));
  EXPECT_THAT(signalled(), ElementsAre(endable));
}

// Nobody can give back what a context takes, and nobody knew it when the memory was granted.
class Context : public Situation {
 protected:
  static constexpr Bytes kLimit = gibibytes(4);
  static constexpr Bytes kContext = mebibytes(300);

  static Policy policy(Bytes limit, Bytes estimate = {}) {
    Policy policy =
        ending_policy({parent("lab", {quota({}, limit)}), user("ann", 1, {quota({}, kLimit)}, "lab")});
    policy.devices[0].context_overhead = estimate;
    return policy;
  }
  Process& fill(Bytes limit, Bytes estimate = {}) {
    begin(policy(limit, estimate));
    world->set_context(kContext);
    return come_with(limit - estimate, 1, {.ignores_pressure = true});
  }
};

TEST_F(Context, OfAProcessAtItsLimitIsAskedOfNobody) {
  Process& ann = fill(kLimit);
  world->pass(std::chrono::seconds(60));
  EXPECT_THAT(world->asked_ever(), IsEmpty());
  EXPECT_TRUE(world->lives(ann.pid));
  EXPECT_FALSE(world->is_granted(world->grow(ann, mebibytes(2)))) << "it has more than its limit";
}

TEST_F(Context, IsLeftToAProcessThatGivesBackWhatALowerLimitTakes) {
  Process& ann = fill(kLimit);
  ASSERT_TRUE(world->apply(policy(gibibytes(3))));
  EXPECT_EQ(world->asked(ann), gibibytes(1));
  world->give_back(ann, 0, gibibytes(1));
  world->pass(std::chrono::seconds(60));
  EXPECT_TRUE(world->lives(ann.pid));
}

TEST_F(Context, AsLargeAsItsEstimateIsPartOfWhatALowerLimitTakes) {
  Process& ann = fill(kLimit, kContext);
  ASSERT_TRUE(world->apply(policy(kLimit - gibibytes(1), kContext)));
  EXPECT_EQ(world->asked(ann), gibibytes(1));
  world->give_back(ann, 0, gibibytes(1));
}

class Renamed : public Situation {
 protected:
  static Policy policy(const std::string& name, Bytes limit) {
    return ending_policy({user(name, 1000, {quota({}, limit)})});
  }
};

TEST_F(Renamed, RenamedRuleWithALowerLimitAsksLivingSessions) {
  begin(policy("ann", gibibytes(4)));
  Process& process = come_with(gibibytes(3), 1000);
  ASSERT_TRUE(world->apply(policy("anna", gibibytes(2))));
  EXPECT_EQ(world->asked(process), gibibytes(1));
  world->pass(std::chrono::seconds(10));
  EXPECT_LE(world->mapped(process), gibibytes(2));
  EXPECT_THAT(signalled(), IsEmpty());
}

}  // namespace
}  // namespace gpumem::core::promises
