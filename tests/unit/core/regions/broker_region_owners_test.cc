#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Whose regions are when tenants become others: by another policy, and over a restart.

namespace gpumem::core {
namespace {

using std::chrono::seconds;

constexpr const char* kUid = "2f0c4a11-9f5d-4d1e-8a77-0a7f6d4c1b22";
constexpr const char* kTenant = "pod ml/a";

// A pod whose processes run as bob does, who has a rule of his own.
Policy owners_policy(const std::string& bob = "bob", bool prepared = true) {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.tenants = {user(bob, 2, {{{}, mebibytes(64)}})};
  if (!prepared) return policy;
  policy.tenants.push_back(parent(kTenant, {{mebibytes(4), mebibytes(32)}}));
  policy.pods.prepared[kUid] = kTenant;
  return policy;
}

class BrokerRegionOwners : public testing::Test {
 protected:
  SessionId open_in_pod() {
    Peer peer = peer_of(2);
    peer.pod = kUid;
    peer.contained = true;
    return machine.broker.open_session(peer, "test", machine.now).value();
  }
  static Publish kept(const std::string& name = "weights") {
    Publish terms;
    terms.name = name;
    terms.keep = true;
    return terms;
  }
  Result<RegionId> publish(SessionId publisher, SliceId slice, const std::vector<LeaseId>& leases,
                           Publish terms) {
    auto version = machine.broker.publish(publisher, of_leases(std::move(terms), slice, leases), machine.now);
    machine.collect();
    return version;
  }
  // A kept region of the pod that no process has.
  Grant leave_region() {
    const SessionId publisher = open_in_pod();
    const SliceId slice = machine.slice(publisher);
    const Grant grant = machine.get(publisher, slice, mebibytes(8));
    EXPECT_TRUE(publish(publisher, slice, Machine::leases_of(grant), kept()));
    machine.die(publisher);
    return grant;
  }
  void apply(Policy policy) {
    const auto applied = machine.broker.apply(std::move(policy), machine.now);
    ASSERT_TRUE(applied) << applied.error().message;
    machine.collect();
  }
  bool may_map(SessionId session, const std::string& owner) {
    const auto mapped = machine.broker.map_region(session, {.owner = owner, .name = "weights"}, machine.now);
    machine.collect();
    return mapped.has_value();
  }

  Machine machine{owners_policy()};
};

TEST_F(BrokerRegionOwners, APodThatHasEndedKeepsItsOwn) {
  leave_region();
  apply(owners_policy());
  EXPECT_EQ(machine.charged(kTenant), mebibytes(8));
  EXPECT_EQ(machine.charged("bob"), Bytes{}) << "a user of the machine, whose id the pod has chosen";
  EXPECT_FALSE(may_map(machine.connect(2), "bob"));
  EXPECT_FALSE(may_map(machine.connect(2), kTenant));
  EXPECT_TRUE(may_map(open_in_pod(), kTenant));
}

TEST_F(BrokerRegionOwners, APodThatHasEndedKeepsItsOwnOverARestart) {
  const Grant grant = leave_region();
  machine.restart(owners_policy(), {grant});
  EXPECT_EQ(machine.charged(kTenant), mebibytes(8));
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  EXPECT_FALSE(may_map(machine.connect(2), "bob"));
  EXPECT_TRUE(may_map(open_in_pod(), kTenant));
}

TEST_F(BrokerRegionOwners, APodForWhichNothingIsPreparedAnyMoreIsAskedForThem) {
  leave_region();
  apply(owners_policy("bob", false));
  machine.pass_in_steps(seconds(1));
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  EXPECT_TRUE(machine.is_as_new());
}

// Its publisher has given one half back, which is kept: bob is one tenant, before and after.
TEST_F(BrokerRegionOwners, ATenantOfAnotherNameHasAllThatIsKept) {
  const SessionId publisher = machine.connect(2);
  const SliceId slice = machine.slice(publisher);
  const Grant first = machine.get(publisher, slice, mebibytes(4));
  const Grant second = machine.get(publisher, slice, mebibytes(4));
  std::vector<LeaseId> leases = Machine::leases_of(first);
  const std::vector<LeaseId> rest = Machine::leases_of(second);
  leases.insert(leases.end(), rest.begin(), rest.end());
  ASSERT_TRUE(publish(publisher, slice, leases, kept()));
  ASSERT_TRUE(machine.give_back(publisher, slice, second));
  apply(owners_policy("rob"));
  EXPECT_TRUE(may_map(machine.connect(2), "rob"));
  EXPECT_EQ(machine.charged("rob"), mebibytes(8));
  machine.die(publisher);
  EXPECT_EQ(machine.charged("rob"), mebibytes(8));
}

TEST_F(BrokerRegionOwners, WhoWaitsForItsOwnWaitsForThoseOfItsNewName) {
  const SessionId reader = machine.connect(2);
  const SessionId publisher = machine.connect(2);
  const RequestId id = machine.request_ids.next();
  machine.broker.map_or_wait(id, reader, {.owner = {}, .name = "weights", .wait = seconds(10)}, machine.now);
  machine.collect();
  apply(owners_policy("rob"));
  ASSERT_FALSE(machine.maps.contains(id));
  const SliceId slice = machine.slice(publisher);
  const Grant grant = machine.get(publisher, slice, mebibytes(2));
  ASSERT_TRUE(publish(publisher, slice, Machine::leases_of(grant), kept()));
  ASSERT_TRUE(machine.maps.contains(id));
  EXPECT_TRUE(machine.maps.at(id));
}

TEST_F(BrokerRegionOwners, KeepFewOfOneExtent) {
  const SessionId publisher = machine.connect(2);
  const SliceId slice = machine.slice(publisher);
  const std::vector<LeaseId> leases = Machine::leases_of(machine.get(publisher, slice, mebibytes(2)));
  for (std::size_t i = 0; i < Regions::kMostKeptOfLease; ++i)
    ASSERT_TRUE(publish(publisher, slice, leases, kept("r" + std::to_string(i))));
  const auto refused = publish(publisher, slice, leases, kept("another"));
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  Publish bound = kept("another");
  bound.keep = false;
  EXPECT_TRUE(publish(publisher, slice, leases, bound)) << "others cost nothing when they change hands";
  ASSERT_TRUE(machine.broker.remove_region(publisher, {"r0"}, machine.now));
  EXPECT_TRUE(publish(publisher, slice, leases, kept("another")));
}

}  // namespace
}  // namespace gpumem::core
