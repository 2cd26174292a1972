#include "tests/unit/core/machine.h"

// A session may end at every stage of the way of memory, and in every manner.

namespace gpumem::core {
namespace {

enum class End { kGoodbye, kLaneLostThenDeath, kDeath, kDeathThenLaneLost };

class BrokerEnd : public testing::TestWithParam<End> {
 protected:
  BrokerEnd() { machine.jobs_run_at_once = false; }

  void end(SessionId session) {
    switch (GetParam()) {
      case End::kGoodbye: return machine.say_goodbye(session);
      case End::kLaneLostThenDeath: machine.lose_lane(session); return machine.die(session);
      case End::kDeath: return machine.die(session);
      case End::kDeathThenLaneLost: machine.die(session); return machine.lose_lane(session);
    }
  }
  void expect_nothing_left_of(SessionId session) {
    machine.run_jobs();
    machine.pass_in_steps(std::chrono::seconds(10));
    machine.run_jobs();
    EXPECT_EQ(machine.charged("ann"), Bytes{0});
    EXPECT_FALSE(machine.broker.knows(session));
    EXPECT_EQ(machine.forgotten, std::vector{session}) << "once";
    EXPECT_TRUE(machine.broker.sessions().empty());
    EXPECT_TRUE(machine.is_as_new());
  }
  Grant get(SessionId session, Bytes bytes) {
    const RequestId id = machine.grow(session, slice, bytes);
    machine.run_jobs();
    EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
    return machine.answers.at(id).value();
  }

  Machine machine;
  SessionId ann = machine.connect(1);
  SliceId slice = machine.slice(ann);
};

INSTANTIATE_TEST_SUITE_P(InEveryManner, BrokerEnd,
                         testing::Values(End::kGoodbye, End::kLaneLostThenDeath, End::kDeath,
                                         End::kDeathThenLaneLost));

TEST_P(BrokerEnd, WhileARequestWaitsLeavesNothing) {
  get(ann, mebibytes(60));
  const RequestId id = machine.grow(ann, slice, mebibytes(4));
  machine.run_jobs();
  ASSERT_TRUE(machine.is_granted(id));
  const SessionId other = machine.connect(2);
  const RequestId waiting = machine.grow(other, machine.slice(other), mebibytes(8), std::chrono::seconds(5));
  end(ann);
  machine.run_jobs();
  EXPECT_TRUE(machine.is_granted(waiting));
  machine.die(other);
  machine.run_jobs();
  EXPECT_TRUE(machine.is_as_new());
}

TEST_P(BrokerEnd, OfAWaiterDropsItsRequests) {
  const SessionId bob = machine.connect(2);
  const RequestId all = machine.grow(bob, machine.slice(bob), mebibytes(48));
  machine.run_jobs();
  ASSERT_TRUE(machine.is_granted(all));
  const RequestId waiting = machine.grow(ann, slice, mebibytes(18), std::chrono::seconds(5));
  end(ann);
  EXPECT_EQ(machine.broker.devices()[0].waiting, 0u);
  machine.die(bob);
  machine.run_jobs();
  machine.pass(std::chrono::seconds(9));
  EXPECT_FALSE(machine.is_answered(waiting));
  EXPECT_TRUE(machine.is_as_new());
}

TEST_P(BrokerEnd, IsToldOnceAndThenIgnored) {
  end(ann);
  end(ann);
  machine.broker.session_ended(SessionId{99}, SessionEnd::kExited, machine.now);
  expect_nothing_left_of(ann);
}

TEST(BrokerLaneLost, KeepsTheMemoryOfALivingProcessChargedUntilItExits) {
  Machine machine;
  const SessionId ann = machine.connect(1);
  const SliceId slice = machine.slice(ann);
  const Grant grant = machine.get(ann, slice, mebibytes(10));
  machine.lose_lane(ann);
  EXPECT_EQ(machine.charges("ann")[Charge::kQuarantined], mebibytes(10));
  for (const OfferedLease& one : grant.leases) EXPECT_TRUE(machine.driver.has_handle(one.extent.id));
  machine.pass_in_steps(std::chrono::hours(1));
  EXPECT_EQ(machine.charged("ann"), mebibytes(10));
  EXPECT_FALSE(machine.broker.knows(ann));
  EXPECT_EQ(machine.broker.give_back(ann, {slice, Machine::leases_of(grant)}, machine.now).error().code,
            Code::kUnauthenticated);
  EXPECT_EQ(machine.broker.accept(ann, grant.id).error().code, Code::kNotFound);
  machine.die(ann);
  EXPECT_TRUE(machine.is_as_new());
}

// Nobody could ask its process for declared memory any more, and an honest one would be ended for it.
TEST(BrokerReleased, EndsWhatItHasDeclaredAlthoughItsMemoryIsNotProvedFree) {
  Machine machine;
  const SessionId bob = machine.connect(2);
  const SliceId slice = machine.slice(bob);
  machine.get(bob, slice, mebibytes(8));
  ASSERT_TRUE(machine.broker.charge(bob, {"GPU-0", mebibytes(4)}, machine.now));
  const auto outside = [&] {
    for (const TenantView& one : machine.broker.tenants())
      if (one.name == "bob") return one.outside;
    return Bytes{};
  };
  EXPECT_EQ(outside(), mebibytes(4));
  machine.broker.session_ended(bob, SessionEnd::kReleased, machine.now);
  machine.run_jobs();
  EXPECT_EQ(machine.charged("bob"), mebibytes(8)) << "its process keeps it";
  EXPECT_EQ(outside(), Bytes{});
  machine.die(bob);
  machine.pass_in_steps(std::chrono::seconds(10));
  EXPECT_TRUE(machine.is_as_new());
}

TEST(BrokerLaneLost, LeavesWhatWasGivenBackBeforeToBeFreed) {
  Machine machine;
  machine.jobs_run_at_once = false;
  const SessionId ann = machine.connect(1);
  const SliceId slice = machine.slice(ann);
  const RequestId id = machine.grow(ann, slice, mebibytes(10));
  machine.run_jobs();
  ASSERT_TRUE(machine.give_back(ann, slice, machine.answers.at(id).value()));
  machine.lose_lane(ann);
  EXPECT_EQ(machine.charges("ann")[Charge::kReturning], mebibytes(10));
  machine.run_jobs();
  EXPECT_EQ(machine.forgotten, std::vector{ann});
}

}  // namespace
}  // namespace gpumem::core
