#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Pods as tenants, prepared for and not any more, while the broker runs and over its restarts.

namespace gpumem::core {
namespace {

constexpr const char* kUid = "2f0c4a11-9f5d-4d1e-8a77-0a7f6d4c1b22";
constexpr const char* kTenant = "pod ml/a";

// Users without a rule may have 8 MiB; the pod, as `name`, `limit`, of which 4 MiB are promised.
Policy with_pod(const std::string& name = kTenant, Bytes limit = mebibytes(32)) {
  Policy policy = small_policy();
  policy.others = {{{}, mebibytes(8)}};
  policy.tenants.push_back(parent(name, {{mebibytes(4), limit}}));
  policy.pods.prepared[kUid] = name;
  return policy;
}
Policy without_pod(bool lend = false) {
  Policy policy = small_policy();
  policy.others = {{{}, mebibytes(8)}};
  policy.pods.others = lend;
  return policy;
}

class BrokerPods : public testing::Test {
 protected:
  Result<SessionId> open() {
    Peer peer = peer_of(1);  // ann, were it not for the pod
    peer.pod = kUid;
    return machine.broker.open_session(peer, "test", machine.now);
  }
  void apply(Policy policy) {
    const auto applied = machine.broker.apply(std::move(policy), machine.now, "prepared");
    EXPECT_TRUE(applied) << applied.error().message;
    machine.collect();
  }
  TenantView view(const std::string& tenant) const {
    for (const TenantView& one : machine.broker.tenants())
      if (one.name == tenant) return one;
    return {};
  }

  Machine machine{with_pod()};
};

TEST_F(BrokerPods, AreChargedAndTheirUsersAreNot) {
  const SessionId one = open().value();
  const SessionId other = open().value();
  machine.get(one, machine.slice(one), mebibytes(20));
  EXPECT_EQ(view(kTenant).charges.total(), mebibytes(20));
  EXPECT_EQ(view("ann").charges.total(), Bytes{});
  const RequestId id = machine.grow(other, machine.slice(other), mebibytes(14));
  EXPECT_EQ(machine.denial(id).reason, Denial::Reason::kTenantLimit);
}

TEST_F(BrokerPods, MoveWithTheirMemoryToTheTenantThatTheyBecome) {
  const SessionId session = open().value();
  machine.get(session, machine.slice(session), mebibytes(20));
  apply(with_pod("claim ml/shared"));
  EXPECT_EQ(view("claim ml/shared").charges.total(), mebibytes(20));
  EXPECT_EQ(view(kTenant).name, "") << "nobody is left there";
}

TEST_F(BrokerPods, OweWhatIsTakenAwayWhateverOthersMayHave) {
  const SessionId session = open().value();
  machine.get(session, machine.slice(session), mebibytes(20));
  apply(without_pod(true));
  EXPECT_EQ(view(kTenant).quota.limit, Bytes{});
  EXPECT_EQ(view(kTenant).debt, mebibytes(20));
  EXPECT_EQ(machine.broker.devices()[0].asked_back, mebibytes(20)) << "and are asked for it";
  EXPECT_EQ(machine.broker.tenant_name(open().value()), std::string("pod ") + kUid)
      << "a new one is an other";
}

TEST_F(BrokerPods, OweItAfterARestartToo) {
  const SessionId session = open().value();
  machine.get(session, machine.slice(session), mebibytes(20));
  machine.restart(without_pod(true));
  EXPECT_EQ(view(kTenant).debt, mebibytes(20));
  EXPECT_EQ(view(std::string("pod ") + kUid).name, "");
}

TEST_F(BrokerPods, HaveWhatWasPreparedAfterARestart) {
  const SessionId session = open().value();
  machine.get(session, machine.slice(session), mebibytes(20));
  machine.restart(with_pod());
  EXPECT_EQ(view(kTenant).charges.total(), mebibytes(20));
  EXPECT_EQ(view(kTenant).debt, Bytes{});
  EXPECT_EQ(view(kTenant).quota.guarantee, mebibytes(4));
}

TEST_F(BrokerPods, AreTakenInOnlyAsPreparedOrConfigured) {
  apply(without_pod());
  EXPECT_EQ(open().error().code, Code::kPermissionDenied);
  apply(without_pod(true));
  EXPECT_TRUE(open());
}

}  // namespace
}  // namespace gpumem::core
