#include "tests/promises/situation.h"

// Memory that a process takes past the broker, and what it may be ended for.

namespace gpumem::core::promises {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class PastTheBroker : public Situation {
 protected:
  void SetUp() override {
    Policy policy = ending_policy({user("ann", 1, {quota({}, gibibytes(1))})});
    policy.past_broker.end = true;
    begin(policy);
  }
  // More than the limit allows.
  Process& come_and_take() {
    Process& ann = come(1, {.declares = true, .takes_past = true});
    static_cast<void>(world->slice(ann, 0));
    world->take_past(ann, 0, gibibytes(4));
    return ann;
  }
};

TEST_F(PastTheBroker, DeclaringMemoryTakenPastTheBrokerDoesNotExcuseIt) {
  Process& ann = come_and_take();
  const std::int64_t pid = ann.pid;
  world->declare(ann, 0, gibibytes(4));
  world->pass(std::chrono::seconds(60));
  EXPECT_FALSE(world->lives(pid));
  EXPECT_THAT(signalled(), ElementsAre(pid));
}

TEST_F(PastTheBroker, WhoeverDeclaresWithinItsLimitWhatItTakesIsNotEnded) {
  Process& ann = come(1, {.declares = true, .takes_past = true});
  static_cast<void>(world->slice(ann, 0));
  world->declare(ann, 0, mebibytes(900));
  world->take_past(ann, 0, mebibytes(900));
  world->pass(std::chrono::seconds(60));
  EXPECT_TRUE(world->lives(ann.pid));
  EXPECT_THAT(signalled(), IsEmpty());
}

TEST_F(PastTheBroker, LooksOnDemandNeverCountAgainstAnybody) {
  world->stop_regular_looks();
  world->pass(std::chrono::seconds(1));
  const std::int64_t pid = come_and_take().pid;
  for (int i = 0; i < 1000; ++i) {
    world->look(0, false);
    world->pass(std::chrono::milliseconds(100));
  }
  EXPECT_THAT(signalled(), IsEmpty());
  world->start_regular_looks();
  world->pass(std::chrono::seconds(60));
  EXPECT_FALSE(world->lives(pid)) << "it lasts over regular looks";
  EXPECT_THAT(signalled(), ElementsAre(pid));
}

}  // namespace
}  // namespace gpumem::core::promises
