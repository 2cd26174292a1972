#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class BrokerReload : public testing::Test {
 protected:
  Result<void> apply() {
    auto answer = machine.broker.apply(policy, machine.now);
    machine.collect();
    return answer;
  }
  Quota quota(const std::string& tenant) {
    for (const TenantView& view : machine.broker.tenants()) {
      if (view.name == tenant) return view.quota;
    }
    return {};
  }
  Machine machine;
  Policy policy = small_policy();
  SessionId bob = machine.connect(2);
  SliceId bobs = machine.slice(bob);
};

TEST_F(BrokerReload, PutsQuotasInForceAndCountsAGeneration) {
  const auto before = machine.broker.figures(bob);
  policy.tenants[1].quotas[0] = {mebibytes(8), mebibytes(32)};
  ASSERT_TRUE(apply());
  const auto after = machine.broker.figures(bob);
  EXPECT_EQ(after.generation, before.generation + 1);
  EXPECT_EQ(after.devices[0].guarantee, mebibytes(8).count);
  EXPECT_EQ(after.devices[0].limit, mebibytes(32).count);
}

TEST_F(BrokerReload, ChangesNothingWhereThePolicyCannotHold) {
  policy.tenants[0].quotas[0] = {mebibytes(8), mebibytes(8)};
  policy.tenants[1].quotas[0] = {mebibytes(64), mebibytes(64)};
  EXPECT_EQ(apply().error().code, Code::kInvalidArgument);
  EXPECT_EQ(quota("ann"), (Quota{mebibytes(16), mebibytes(64)}));
  EXPECT_EQ(machine.broker.figures(bob).generation, 1u);
}

TEST_F(BrokerReload, RefusesOtherDevices) {
  for (const auto change : {0, 1, 2, 3}) {
    policy = small_policy();
    if (change == 0) policy.devices[0].uuid = "GPU-1";
    if (change == 1) policy.devices[0].pool = mebibytes(62);
    if (change == 2) policy.devices[0].granularity = mebibytes(1);
    if (change == 3) policy = Policy{};
    EXPECT_EQ(apply().error().code, Code::kFailedPrecondition) << change;
  }
}

TEST_F(BrokerReload, UnderWhatIsChargedLeavesADebtThatOnlyReturnsPayOff) {
  const Grant first = machine.get(bob, bobs, mebibytes(24));
  const Grant second = machine.get(bob, bobs, mebibytes(8));
  policy.tenants[1].quotas[0].limit = mebibytes(16);
  ASSERT_TRUE(apply());
  EXPECT_EQ(machine.charged("bob"), mebibytes(32));
  EXPECT_EQ(machine.denial(machine.grow(bob, bobs, kPiece)).reason, Denial::Reason::kDebt);
  ASSERT_TRUE(machine.give_back(bob, bobs, first));
  EXPECT_TRUE(machine.is_granted(machine.grow(bob, bobs, mebibytes(8))));
  EXPECT_FALSE(machine.is_granted(machine.grow(bob, bobs, kPiece)));
  ASSERT_TRUE(machine.give_back(bob, bobs, second));
}

TEST_F(BrokerReload, TellsAWaiterOfTheLimitThatWasLoweredUnderIt) {
  const SessionId ann = machine.connect(1);
  machine.get(bob, bobs, mebibytes(48));
  const RequestId id = machine.grow(ann, machine.slice(ann), mebibytes(20), seconds(2));
  ASSERT_FALSE(machine.is_answered(id));
  policy.tenants[0].quotas[0].limit = mebibytes(16);
  ASSERT_TRUE(apply());
  EXPECT_EQ(machine.denial(id).reason, Denial::Reason::kTenantLimit);
  EXPECT_EQ(machine.code(id), Code::kResourceExhausted);
}

TEST_F(BrokerReload, AddsAndRetiresTenants) {
  policy.tenants.push_back(user("cid", 3, {{{}, mebibytes(8)}}));
  policy.tenants.erase(policy.tenants.begin());
  ASSERT_TRUE(apply());
  EXPECT_TRUE(machine.knows_tenant("cid"));
  EXPECT_FALSE(machine.knows_tenant("ann"));
  EXPECT_EQ(machine.broker.tenant_name(machine.connect(3)), "cid");
  EXPECT_FALSE(machine.broker.open_session(peer_of(1), "", machine.now));
}

TEST_F(BrokerReload, LetsAConnectedTenantWithoutARuleKeepWhatItHasButNotGrow) {
  machine.get(bob, bobs, mebibytes(8));
  policy.tenants.pop_back();
  ASSERT_TRUE(apply());
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  EXPECT_EQ(machine.denial(machine.grow(bob, bobs, kPiece)).reason, Denial::Reason::kTenantLimit);
  machine.die(bob);
  EXPECT_FALSE(machine.knows_tenant("bob"));
  EXPECT_TRUE(machine.is_as_new());
}

// The name of bob's tenant is that of another user's now.
TEST_F(BrokerReload, LeavesNoSessionInATenantThatIsAnotherUsers) {
  machine.get(bob, bobs, mebibytes(8));
  policy.tenants[1].uid = 5;
  ASSERT_TRUE(apply());
  const SessionId heir = machine.connect(5);
  const SliceId slice = machine.slice(heir);
  const Grant grant = machine.get(heir, slice, mebibytes(2));
  Publish terms;
  terms.name = "weights";
  ASSERT_TRUE(machine.broker.publish(heir, of_leases(terms, slice, Machine::leases_of(grant)), machine.now));
  EXPECT_FALSE(machine.broker.map_region(bob, {.owner = {}, .name = "weights"}, machine.now));
  EXPECT_FALSE(machine.is_granted(machine.grow(bob, bobs, kPiece)));
  EXPECT_EQ(machine.charged("uid:2"), mebibytes(8));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(8));
  machine.restart(policy);
  EXPECT_EQ(machine.charged("uid:2"), mebibytes(8));
}

TEST_F(BrokerReload, CountsTheGuaranteesOfConnectedOthers) {
  policy.others = {{mebibytes(20), mebibytes(32)}};
  ASSERT_TRUE(apply());
  machine.connect(9);
  machine.connect(10);
  policy.others = {{mebibytes(30), mebibytes(32)}};
  const auto answer = apply();
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("connected"));
  EXPECT_EQ(machine.broker.devices()[0].guaranteed, mebibytes(56));
}

TEST_F(BrokerReload, DoesNotCountGuaranteesOfTenantsThatGoWithIt) {
  policy.tenants[0].quotas[0] = {mebibytes(32), mebibytes(64)};
  policy.tenants.push_back(user("cid", 3, {{mebibytes(16), mebibytes(16)}}));
  ASSERT_TRUE(apply());
  policy.tenants = {policy.tenants[1]};
  policy.others = {{mebibytes(40), mebibytes(64)}};
  const auto answer = apply();
  EXPECT_TRUE(answer) << "ann and cid are gone: 40 MiB at most are promised";
  EXPECT_EQ(machine.broker.devices()[0].guaranteed, Bytes{0});
}

// A process that is no client is charged to the tenant until the next look at the device.
TEST(BrokerReloadPastTheBroker, ARenamedTenantIsPromisedItsGuaranteeOnce) {
  const auto with = [](const std::string& name) {
    Policy policy = small_policy();
    policy.devices[0].total = mebibytes(256);
    policy.past_broker.allowance = mebibytes(8);
    policy.tenants = {user("ann", 1, {{{}, mebibytes(64)}}), user(name, 2, {{mebibytes(40), mebibytes(64)}})};
    return policy;
  };
  Machine machine(with("bob"));
  machine.connect(2);
  machine.broker.begin_observation(0);
  Observation seen;
  seen.broker = mebibytes(64);
  seen.used = seen.broker + mebibytes(12);
  seen.broker_started = 1;
  seen.processes.push_back(
      {.pid = 4711, .started = 7, .uid = 2, .gids = {102}, .command = "train", .used = mebibytes(12)});
  machine.broker.observe(seen, machine.now);
  machine.collect();
  ASSERT_TRUE(machine.broker.apply(with("robert"), machine.now));
  machine.collect();
  const SessionId ann = machine.connect(1);
  const RequestId id = machine.grow(ann, machine.slice(ann), mebibytes(20));
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
}

}  // namespace
}  // namespace gpumem::core
