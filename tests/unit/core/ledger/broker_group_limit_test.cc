#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// A guarantee that was raised below a group whose members have used its limit up.

namespace gpumem::core {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// Bob has all 32 MiB that the lab may have of the device's 64. Then 16 of them are promised to ann.
class FullGroup : public testing::Test {
 protected:
  static Policy policy(Bytes guarantee, Escalation escalation) {
    Policy policy = small_policy();
    policy.devices[0].reclaim.escalation = escalation;
    policy.tenants = {parent("lab", {{{}, mebibytes(32)}}),
                      user("ann", 1, {{guarantee, mebibytes(32)}}, "lab"),
                      user("bob", 2, {{{}, mebibytes(32)}}, "lab")};
    return policy;
  }
  void start(Escalation escalation) {
    machine.emplace(policy({}, escalation));
    ann = machine->connect(1);
    bob = machine->connect(2);
    bobs = machine->slice(bob);
    half = machine->get(bob, bobs, mebibytes(16));
    machine->get(bob, bobs, mebibytes(16));
    ASSERT_TRUE(machine->broker.apply(policy(mebibytes(16), escalation), machine->now));
    machine->collect();
  }
  RequestId claim() { return machine->grow(ann, machine->slice(ann), mebibytes(16), minutes(5)); }

  std::optional<Machine> machine;
  SessionId ann;
  SessionId bob;
  SliceId bobs;
  Grant half;
};

TEST_F(FullGroup, MembersAreAskedForAClaimAlthoughMemoryIsFreeOutside) {
  start(Escalation::kWait);
  EXPECT_EQ(machine->asked_of(bob), Bytes{}) << "nobody claims it yet";
  const RequestId id = claim();
  ASSERT_FALSE(machine->is_answered(id));
  EXPECT_EQ(machine->asked_of(bob), mebibytes(16));
  ASSERT_TRUE(machine->give_back(bob, bobs, half));
  EXPECT_TRUE(machine->is_granted(id));
}

TEST_F(FullGroup, ClaimIsNotDeniedWhileWhatItNeedsIsOnItsWayBack) {
  start(Escalation::kDeny);
  machine->jobs_run_at_once = false;
  const RequestId id = claim();
  ASSERT_TRUE(machine->give_back(bob, bobs, half));
  ASSERT_EQ(machine->in(Charge::kReturning), mebibytes(16));
  machine->pass_in_steps(seconds(60));
  ASSERT_FALSE(machine->is_answered(id)) << machine->why(id);
  machine->run_jobs();
  EXPECT_TRUE(machine->is_granted(id));
}

}  // namespace
}  // namespace gpumem::core
