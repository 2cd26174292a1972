#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

class BrokerReturn : public testing::Test {
 protected:
  Machine machine;
  SessionId ann = machine.connect(1);
  SliceId slice = machine.slice(ann);
  Grant grant = machine.get(ann, slice, mebibytes(14));
};

TEST_F(BrokerReturn, OfAGrantWhoseAnswerWasLostNeedsNoWordOfTheClient) {
  const RequestId id = machine.grow(ann, slice, mebibytes(2));
  const Grant lost = machine.answers.at(id).value();
  machine.stop_using(ann, lost);
  machine.broker.abandon(lost.id, machine.now);
  machine.collect();
  EXPECT_EQ(machine.charged("ann"), mebibytes(14));
}

TEST_F(BrokerReturn, OfAGrantThatWasAcceptedIsNotForced) {
  machine.broker.abandon(grant.id, machine.now);
  machine.collect();
  EXPECT_EQ(machine.charges("ann")[Charge::kActive], mebibytes(14));
}

TEST_F(BrokerReturn, OfALeaseIsMadeOnce) {
  machine.jobs_run_at_once = false;
  ASSERT_TRUE(machine.give_back(ann, slice, grant));
  const auto again = machine.keep_but_give_back(ann, slice, grant);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kNotFound);
  EXPECT_EQ(machine.events_of(Event::Kind::kReturned).size(), 1U);
}

TEST_F(BrokerReturn, MakesRoomInTheSliceAtOnceButInTheLimitOnlyWhenProved) {
  const SliceId small = machine.slice(ann, mebibytes(50));
  const Grant held = machine.get(ann, small, mebibytes(50));
  ASSERT_TRUE(machine.keep_but_give_back(ann, small, held));
  const RequestId id = machine.grow(ann, small, mebibytes(4), std::chrono::seconds(60));
  EXPECT_FALSE(machine.is_answered(id));
  machine.stop_using(ann, held);
  machine.pass_in_steps(std::chrono::seconds(5));
  EXPECT_TRUE(machine.is_granted(id));
}

}  // namespace
}  // namespace gpumem::core
