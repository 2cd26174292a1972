#include "tests/unit/core/machine.h"

// Clients that keep what they gave back, and processes past the broker.

namespace gpumem::core {
namespace {

using std::chrono::seconds;

TEST(HostileHolder, ThatSaysGoodbyeStaysChargedUntilItDies) {
  Machine machine;
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(8));
  machine.broker.session_ended(bob, SessionEnd::kReleased, machine.now);
  machine.collect();
  machine.pass_in_steps(seconds(60));
  EXPECT_EQ(machine.charges("bob")[Charge::kQuarantined], mebibytes(8));
  EXPECT_TRUE(machine.forgotten.empty());
  machine.die(bob);
  machine.pass_in_steps(seconds(5));
  EXPECT_TRUE(machine.is_as_new());
  EXPECT_EQ(machine.forgotten, std::vector{bob});
}

TEST(MemoryPastTheBroker, TakenDuringAReshapeMakesTheGrowthUnavailable) {
  Machine machine;
  machine.jobs_run_at_once = false;
  const SessionId ann = machine.connect(1);
  const SliceId slice = machine.slice(ann);
  machine.use_up_stock(ann, slice);
  const RequestId id = machine.grow(ann, slice, Machine::kGrowthWithJob);
  ASSERT_FALSE(machine.is_answered(id));
  machine.driver.fails = [](const Extent&) { return true; };
  machine.run_jobs();
  EXPECT_EQ(machine.code(id), Code::kUnavailable);
  EXPECT_EQ(machine.charged("ann"), mebibytes(46));
  machine.driver.fails = nullptr;
  machine.jobs_run_at_once = true;
  machine.pass_in_steps(seconds(10));
  EXPECT_TRUE(machine.is_granted(machine.grow(ann, slice, mebibytes(18))));
}

TEST(Churn, OfOneClientDoesNotKeepAnothersMemoryQuarantined) {
  Machine machine;
  const SessionId ann = machine.connect(1);
  machine.get(ann, machine.slice(ann), mebibytes(8));
  machine.broker.session_ended(ann, SessionEnd::kReleased, machine.now);
  machine.collect();
  ASSERT_EQ(machine.in(Charge::kQuarantined), mebibytes(8));
  for (const ExtentId id : machine.held[ann]) machine.driver.let_go(id);
  const SessionId bob = machine.connect(2);
  const SliceId slice = machine.slice(bob);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(machine.give_back(bob, slice, machine.get(bob, slice, kPiece)));
    machine.pass(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(machine.in(Charge::kQuarantined), Bytes{0});
}

// Bob's process has passed the descriptors of borrowed memory to a child, and has ended.
struct BrokerUnanswered : testing::Test {
  static Policy lending() {
    Policy policy = small_policy();  // 16 of 64 MiB are ann's
    policy.devices[0].reclaim.lend_guarantees = true;
    return policy;
  }
  BrokerUnanswered() {
    const SessionId first = machine.connect(2);
    borrowed = machine.get(first, machine.slice(first), mebibytes(40));
    for (const OfferedLease& one : borrowed.leases) machine.driver.hold(one.extent.id);
    machine.die(first);
    second = machine.connect(2);
    slice = machine.slice(second);
    machine.get(second, slice, mebibytes(8));
  }
  void end_child() {
    for (const OfferedLease& one : borrowed.leases) machine.driver.let_go(one.extent.id);
    machine.pass_in_steps(std::chrono::seconds(5));
  }
  Policy policy = lending();
  Machine machine{policy};
  Grant borrowed;
  SessionId second;
  SliceId slice;
};

TEST_F(BrokerUnanswered, MemoryOfATenantKeepsItFromGuaranteesOfOthersUntilItIsFree) {
  const RequestId more = machine.grow(second, slice, mebibytes(2));
  ASSERT_FALSE(machine.is_granted(more));
  EXPECT_EQ(machine.denial(more).unanswered, mebibytes(40));
  EXPECT_NE(machine.why(more).find("lent nothing that is guaranteed to others"), std::string::npos);
  const RequestId all = machine.grow(second, slice, mebibytes(56), std::chrono::minutes(1));
  EXPECT_FALSE(machine.is_answered(all)) << "the child may end";
  end_child();
  EXPECT_TRUE(machine.is_granted(all));
}

TEST_F(BrokerUnanswered, MemoryGoesWithItsSessionToAnotherTenant) {
  const RequestId more = machine.grow(second, slice, mebibytes(2), std::chrono::minutes(1));
  policy.tenants[1].name = "rob";
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  machine.collect();
  EXPECT_FALSE(machine.is_answered(more));
  end_child();
  EXPECT_TRUE(machine.is_granted(more));
}

}  // namespace
}  // namespace gpumem::core
