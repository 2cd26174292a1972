#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Regions whose charge is shared: who pays how much, what a limit has no room for, and what becomes of it
// when readers, publisher, broker or policy change.

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The tenants lab, with ann and bob, and zoe and eve, who belong to nobody. Eve may have little.
Policy shares_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.devices[0].reclaim.lend_guarantees = true;
  policy.tenants = {parent("lab", {{{}, mebibytes(40)}}), user("ann", 1, {{{}, mebibytes(40)}}, "lab"),
                    user("bob", 2, {{{}, mebibytes(20)}}, "lab"),
                    user("zoe", 3, {{mebibytes(16), mebibytes(32)}}), user("eve", 4, {{{}, mebibytes(4)}})};
  return policy;
}

class BrokerRegionShares : public testing::Test {
 protected:
  BrokerRegionShares() {
    publisher = machine.connect(2);
    ann = machine.connect(1);
    zoe = machine.connect(3);
    eve = machine.connect(4);
    slice = machine.slice(publisher);
    grant = one_extent(mebibytes(16));
  }
  /// So that parts are rounded once.
  Grant one_extent(Bytes bytes) {
    const RequestId id = machine.grow(publisher, {{slice, bytes, {}, kOneExtent}});
    EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
    const Grant granted = machine.answers.at(id).value();
    EXPECT_EQ(granted.leases.size(), 1u);
    EXPECT_TRUE(machine.broker.accept(publisher, granted.id));
    return granted;
  }
  Result<RegionId> publish(Charging charging = Charging::kShared, bool keep = false) {
    RegionTerms terms;
    terms.name = "weights";
    terms.sharing = Sharing::kPublic;
    terms.charging = charging;
    terms.keep = keep;
    auto published = machine.broker.publish(publisher, slice, Machine::leases_of(grant), terms, machine.now);
    machine.collect();
    return published;
  }
  Result<MappedRegion> map(SessionId session) {
    auto mapped = machine.broker.map_region(session, "bob", "weights", Regions::kNewest, machine.now);
    if (mapped) {
      for (const auto& [lease, extent] : mapped->imported.leases) {
        machine.driver.hold(extent.id);
        machine.held[session].push_back(extent.id);
      }
    }
    machine.collect();
    return mapped;
  }
  ImportId use(SessionId session) {
    auto mapped = map(session);
    EXPECT_TRUE(mapped) << mapped.error().message;
    return mapped ? mapped->imported.id : ImportId{};
  }
  void unmap(SessionId session, ImportId import) {
    machine.stop_using(session, grant);
    EXPECT_TRUE(machine.broker.release_import(session, import, machine.now));
    machine.collect();
  }
  TenantView view(const std::string& tenant) const {
    for (const TenantView& one : machine.broker.tenants())
      if (one.name == tenant) return one;
    return {};
  }
  /// Towards its limit.
  Bytes pays(const std::string& tenant) const {
    const TenantView one = view(tenant);
    return one.charges.total() + one.shares - one.relief;
  }
  std::vector<Bytes> all_pay() const { return {pays("bob"), pays("ann"), pays("zoe"), pays("eve")}; }

  Machine machine{shares_policy()};
  SessionId publisher, ann, zoe, eve;
  SliceId slice;
  Grant grant;
};

constexpr Bytes kNone{};

TEST_F(BrokerRegionShares, ArePaidInEqualPartsByThoseWhoHaveItMapped) {
  ASSERT_TRUE(publish());
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(16), kNone, kNone, kNone));
  use(zoe);
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(8), kNone, mebibytes(8), kNone));
  use(ann);
  const Bytes third{mebibytes(16).count / 3};
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(16) - third - third, third, third, kNone));
  EXPECT_EQ(machine.charged("bob"), mebibytes(16)) << "the memory is where it was";
  EXPECT_EQ(machine.free(), mebibytes(48));
}

TEST_F(BrokerRegionShares, AreATenantsWhateverTheNumberOfItsReaders) {
  ASSERT_TRUE(publish());
  const ImportId first = use(zoe);
  const SessionId mate = machine.connect(3);
  use(mate);
  use(machine.connect(2));
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(8), kNone, mebibytes(8), kNone));
  unmap(zoe, first);
  EXPECT_EQ(pays("zoe"), mebibytes(8)) << "another has it mapped";
  machine.die(mate);
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(16), kNone, kNone, kNone));
}

TEST_F(BrokerRegionShares, AreNobodysIfThePublisherPays) {
  ASSERT_TRUE(publish(Charging::kPublisher));
  use(zoe);
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(16), kNone, kNone, kNone));
}

TEST_F(BrokerRegionShares, RefuseAReaderWhoseLimitHasNoRoom) {
  ASSERT_TRUE(publish());
  use(zoe);
  const std::vector<Bytes> before = all_pay();
  const auto refused = map(eve);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("the limit of tenant 'eve' on GPU-0 (4MiB"));
  EXPECT_EQ(all_pay(), before);
  use(ann);
  use(eve);
  EXPECT_EQ(pays("eve"), mebibytes(4)) << "of four, each has a quarter";
}

TEST_F(BrokerRegionShares, RefuseAReaderWhoseGroupsLimitHasNoRoom) {
  const SliceId hers = machine.slice(zoe);
  grant = machine.get(zoe, hers, mebibytes(16));
  machine.get(ann, machine.slice(ann), mebibytes(20));  // the lab has 36 of 40 MiB
  RegionTerms terms;
  terms.name = "weights";
  terms.sharing = Sharing::kPublic;
  terms.charging = Charging::kShared;
  ASSERT_TRUE(machine.broker.publish(zoe, hers, Machine::leases_of(grant), terms, machine.now));
  const auto refused = machine.broker.map_region(ann, "zoe", "weights", Regions::kNewest, machine.now);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the limit of tenant 'lab'"));
  EXPECT_EQ(view("lab").shares, kNone);
}

// Zoe pays less when another of the lab does: so the lab pays more.
TEST_F(BrokerRegionShares, RefuseAReaderWhoMakesItsGroupPayTooMuch) {
  ASSERT_TRUE(publish());
  use(zoe);
  machine.get(ann, machine.slice(ann), mebibytes(32));  // of 40 MiB the lab pays all, bob's half included
  const std::vector<Bytes> before = all_pay();
  const auto refused = map(ann);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the limit of tenant 'lab'"));
  EXPECT_EQ(all_pay(), before);
  EXPECT_EQ(view("lab").debt, kNone);
}

TEST_F(BrokerRegionShares, WithinAGroupAreNeitherMoreNorLessForTheGroup) {
  machine.get(ann, machine.slice(ann), mebibytes(24));  // the lab has all of its 40 MiB
  ASSERT_TRUE(publish());
  use(ann);
  EXPECT_EQ(pays("bob"), mebibytes(8));
  EXPECT_EQ(pays("ann"), mebibytes(32));
  EXPECT_EQ(pays("lab"), mebibytes(40));
  EXPECT_EQ(view("lab").shares, kNone);
  EXPECT_EQ(view("lab").relief, kNone);
}

TEST_F(BrokerRegionShares, NeverGrowBeyondALimitWhenAReaderLeaves) {
  ASSERT_TRUE(publish());
  const ImportId zoes = use(zoe);
  use(ann);
  use(eve);
  unmap(zoe, zoes);
  const Bytes third{mebibytes(16).count / 3};
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(12) - third, third, kNone, mebibytes(4)))
      << "the publisher pays what eve cannot";
  EXPECT_EQ(view("eve").debt, kNone);
  machine.die(ann);
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(12), kNone, kNone, mebibytes(4)));
}

TEST_F(BrokerRegionShares, LeaveThePublisherRoomAndADebtWhenItsReadersGo) {
  ASSERT_TRUE(publish());
  const ImportId zoes = use(zoe);
  const Grant more = machine.get(publisher, slice, mebibytes(12));  // 20 MiB in all: its limit
  EXPECT_EQ(machine.code(machine.grow(publisher, slice, mebibytes(2))), Code::kResourceExhausted);
  unmap(zoe, zoes);
  EXPECT_EQ(view("bob").debt, mebibytes(8));
  EXPECT_EQ(machine.asked_of(publisher), mebibytes(8));
  EXPECT_EQ(machine.asked_of(ann), kNone);
  EXPECT_EQ(machine.events_of(Event::Kind::kDebt).size(), 1u);
  EXPECT_EQ(map(zoe).error().code, Code::kUnavailable) << "it is asked back";
  ASSERT_TRUE(machine.give_back(publisher, slice, more));
  EXPECT_EQ(view("bob").debt, kNone);
  use(zoe);
  EXPECT_EQ(pays("bob"), mebibytes(8));
}

TEST_F(BrokerRegionShares, GoOnAmongTheReadersWhenThePublisherDies) {
  ASSERT_TRUE(publish());
  use(zoe);
  use(ann);
  machine.die(publisher);
  EXPECT_EQ(pays("bob"), kNone);
  EXPECT_EQ(pays("ann"), mebibytes(8));
  EXPECT_EQ(pays("zoe"), mebibytes(8));
  EXPECT_EQ(map(eve).error().code, Code::kNotFound);
  machine.die(ann);
  EXPECT_EQ(pays("zoe"), mebibytes(16));
  machine.die(zoe);
  EXPECT_EQ(machine.free(), mebibytes(64));
}

TEST_F(BrokerRegionShares, GoOnWithAReaderOfThePublishersTenant) {
  ASSERT_TRUE(publish());
  use(machine.connect(2));
  use(zoe);
  machine.die(publisher);
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(8), kNone, mebibytes(8), kNone));
  EXPECT_TRUE(map(ann));
}

TEST_F(BrokerRegionShares, OfAKeptRegionArePaidByItsTenantToo) {
  ASSERT_TRUE(publish(Charging::kShared, true));
  use(zoe);
  machine.die(publisher);
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(8), kNone, mebibytes(8), kNone));
  ASSERT_TRUE(machine.broker.remove_region_of("bob", "weights", Regions::kNewest, machine.now));
  machine.collect();
  EXPECT_THAT(all_pay(), ElementsAre(kNone, kNone, mebibytes(16), kNone));
}

TEST_F(BrokerRegionShares, StayUntilItIsUnmappedWhenItIsRemoved) {
  ASSERT_TRUE(publish());
  const ImportId zoes = use(zoe);
  ASSERT_TRUE(machine.broker.remove_region(publisher, "weights", Regions::kNewest, machine.now));
  EXPECT_EQ(pays("zoe"), mebibytes(8));
  EXPECT_EQ(publish(Charging::kPublisher).error().code, Code::kFailedPrecondition)
      << "zoe has it mapped by another charge";
  unmap(zoe, zoes);
  EXPECT_EQ(pays("bob"), mebibytes(16));
  ASSERT_TRUE(publish(Charging::kPublisher));
  use(zoe);
  EXPECT_EQ(pays("zoe"), kNone);
  EXPECT_EQ(publish(Charging::kShared).error().code, Code::kFailedPrecondition);
}

TEST_F(BrokerRegionShares, AreTheSameAfterARestart) {
  ASSERT_TRUE(publish());
  const ImportId zoes = use(zoe);
  use(ann);
  const std::vector<Bytes> before = all_pay();
  machine.restart(shares_policy(), {grant});
  EXPECT_EQ(all_pay(), before);
  ASSERT_TRUE(machine.resume(publisher, {slice}, {grant}));
  ASSERT_TRUE(machine.resume(zoe, {}, {}, {zoes}));
  const auto regions = machine.broker.regions({"bob"}, "", machine.now).regions;
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].region.charging, Charging::kShared);
  machine.restart(shares_policy());
  EXPECT_EQ(all_pay(), before) << "the region is lost, the memory is still theirs";
}

// Bob has 12 MiB within a limit of 8, since zoe pays 4 of them; she has room for that as eve pays for hers.
class BrokerRegionSharesInAChain : public testing::Test {
 protected:
  BrokerRegionSharesInAChain() {
    bob = has(2, mebibytes(8));
    zoe = has(3, mebibytes(8));
    eve.session = machine.connect(4);
    reads(zoe, "bob");
    reads(eve, "zoe");
    bob.grants.push_back(machine.get(bob.session, bob.slice, mebibytes(4)));
    zoe.grants.push_back(machine.get(zoe.session, zoe.slice, mebibytes(8)));
  }
  static Policy chain() {
    Policy policy;
    policy.devices = {device("GPU-0", mebibytes(64))};
    policy.tenants = {user("bob", 2, {{{}, mebibytes(8)}}), user("zoe", 3, {{{}, mebibytes(16)}}),
                      user("eve", 4, {{{}, mebibytes(12)}})};
    return policy;
  }
  struct Client {
    SessionId session;
    SliceId slice;
    std::vector<Grant> grants;
    std::vector<ImportId> imports;
  };
  Client has(std::uint32_t uid, Bytes bytes) {
    Client client{.session = machine.connect(uid), .slice = {}, .grants = {}, .imports = {}};
    client.slice = machine.slice(client.session);
    client.grants.push_back(machine.get(client.session, client.slice, bytes));
    RegionTerms terms;
    terms.name = "weights";
    terms.sharing = Sharing::kPublic;
    terms.charging = Charging::kShared;
    EXPECT_TRUE(machine.broker.publish(client.session, client.slice,
                                       Machine::leases_of(client.grants.front()), terms, machine.now));
    return client;
  }
  void reads(Client& client, const std::string& owner) {
    const auto mapped =
        machine.broker.map_region(client.session, owner, "weights", Regions::kNewest, machine.now);
    ASSERT_TRUE(mapped) << mapped.error().message;
    client.imports.push_back(mapped->imported.id);
    machine.collect();
  }
  std::map<std::string, Bytes> pays() const {
    std::map<std::string, Bytes> all;
    for (const TenantView& one : machine.broker.tenants()) {
      all[one.name] = one.charges.total() + one.shares - one.relief;
      EXPECT_EQ(one.debt, Bytes{}) << one.name;
    }
    return all;
  }

  Machine machine{chain()};
  Client bob, zoe, eve;
  const std::map<std::string, Bytes> right{
      {"bob", mebibytes(8)}, {"zoe", mebibytes(16)}, {"eve", mebibytes(4)}};
};

TEST_F(BrokerRegionSharesInAChain, AreTheSameAfterAReload) {
  ASSERT_EQ(pays(), right);
  ASSERT_TRUE(machine.broker.apply(chain(), machine.now));
  machine.collect();
  EXPECT_EQ(pays(), right);
  EXPECT_THAT(machine.events_of(Event::Kind::kDebt), IsEmpty());
}

TEST_F(BrokerRegionSharesInAChain, AreTheSameAfterARestart) {
  std::vector<Grant> all = bob.grants;
  all.insert(all.end(), zoe.grants.begin(), zoe.grants.end());
  machine.restart(chain(), all);
  EXPECT_EQ(pays(), right);
  for (const Client& one : {bob, zoe, eve}) {
    const std::vector<SliceId> slices(one.slice ? 1 : 0, one.slice);
    ASSERT_TRUE(machine.resume(one.session, slices, one.grants, one.imports));
  }
  EXPECT_EQ(pays(), right);
  EXPECT_THAT(machine.events_of(Event::Kind::kDebt), IsEmpty());
}

TEST_F(BrokerRegionShares, FallToThePublisherWhereALimitIsLowered) {
  ASSERT_TRUE(publish());
  use(zoe);
  Policy lower = shares_policy();
  lower.tenants[3].quotas = {{mebibytes(2), mebibytes(4)}};
  ASSERT_TRUE(machine.broker.apply(lower, machine.now));
  machine.collect();
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(16), kNone, kNone, kNone));
  ASSERT_TRUE(machine.broker.apply(shares_policy(), machine.now));
  machine.collect();
  EXPECT_THAT(all_pay(), ElementsAre(mebibytes(8), kNone, mebibytes(8), kNone));
}

TEST_F(BrokerRegionShares, FollowTenantsThatMoveIntoAGroup) {
  ASSERT_TRUE(publish());
  use(zoe);
  Policy moved = shares_policy();
  moved.tenants[3].parent = "lab";
  moved.tenants[0].quotas = {{mebibytes(16), mebibytes(40)}};
  ASSERT_TRUE(machine.broker.apply(moved, machine.now));
  machine.collect();
  EXPECT_EQ(pays("zoe"), mebibytes(8));
  EXPECT_EQ(pays("lab"), mebibytes(16));
  EXPECT_EQ(view("lab").shares, kNone);
}

TEST_F(BrokerRegionShares, UseUpThePayersGuaranteeAndLeaveThePublishersUsed) {
  ASSERT_TRUE(publish());
  use(zoe);  // 8 of the 16 MiB that she is guaranteed
  machine.get(ann, machine.slice(ann), mebibytes(24));
  const SessionId hers = machine.connect(3);
  const SliceId slice_of_hers = machine.slice(hers);
  machine.get(hers, slice_of_hers, mebibytes(8));
  EXPECT_EQ(view("zoe").burst, kNone);
  machine.get(hers, slice_of_hers, mebibytes(16));
  EXPECT_EQ(view("zoe").burst, mebibytes(16));
}

// What the readers pay does not keep the memory from a guarantee: who has it is asked for it.
TEST_F(BrokerRegionShares, DelayNoGuarantee) {
  ASSERT_TRUE(publish());
  use(ann);
  machine.get(ann, machine.slice(ann), mebibytes(24));
  machine.grow(eve, machine.slice(eve), mebibytes(4));
  machine.get(zoe, machine.slice(zoe), mebibytes(16));
  Policy promised = shares_policy();
  promised.tenants[4].quotas = {{mebibytes(24), mebibytes(24)}};
  ASSERT_TRUE(machine.broker.apply(promised, machine.now));
  machine.collect();
  const RequestId claim = machine.grow(eve, machine.slice(eve), mebibytes(18), seconds(60));
  EXPECT_FALSE(machine.is_answered(claim));
  EXPECT_GE(machine.asked_of(publisher) + machine.asked_of(ann), mebibytes(14));
  machine.die(ann);
  EXPECT_TRUE(machine.is_granted(claim)) << machine.why(claim);
}

TEST_F(BrokerRegionShares, AreNotPaidForWhatIsNotMapped) {
  ASSERT_TRUE(publish());
  Policy claims = shares_policy();
  claims.tenants[3].quotas = {{mebibytes(60), mebibytes(60)}};
  ASSERT_TRUE(machine.broker.apply(claims, machine.now));
  machine.grow(zoe, machine.slice(zoe), mebibytes(60), seconds(60));
  EXPECT_EQ(map(ann).error().code, Code::kUnavailable) << "it is asked back";
  EXPECT_EQ(view("ann").shares, kNone);
}

TEST_F(BrokerRegionShares, AreBoundInNumber) {
  Policy many = shares_policy();
  for (std::uint32_t i = 0; i < Shares::kMostPayers; ++i)
    many.tenants.push_back(user("user" + std::to_string(i), 100 + i, {{{}, mebibytes(32)}}));
  ASSERT_TRUE(machine.broker.apply(many, machine.now));
  ASSERT_TRUE(publish());
  for (std::uint32_t i = 0; i + 1 < Shares::kMostPayers; ++i) use(machine.connect(100 + i));
  EXPECT_EQ(pays("bob"), Bytes{mebibytes(16).count / Shares::kMostPayers});
  const SessionId last = machine.connect(100 + Shares::kMostPayers - 1);
  EXPECT_EQ(map(last).error().code, Code::kResourceExhausted);
  machine.die(machine.broker.sessions().back().id == last ? machine.connect(100) : last);
  EXPECT_EQ(pays("user0"), Bytes{mebibytes(16).count / Shares::kMostPayers});
}

TEST_F(BrokerRegionShares, AreSeenByThoseWhoPayAndByThePublisher) {
  ASSERT_TRUE(publish());
  use(zoe);
  use(ann);
  const auto seen_by = [&](const RegionViewer& viewer) {
    std::vector<std::string> tenants;
    const RegionPage page = machine.broker.regions(viewer, "", machine.now);
    for (const auto& share : page.regions.at(0).shares) tenants.push_back(share.tenant);
    return tenants;
  };
  EXPECT_THAT(seen_by({"bob"}), testing::UnorderedElementsAre("ann", "zoe"));
  EXPECT_THAT(seen_by({"zoe"}), ElementsAre("zoe"));
  EXPECT_THAT(seen_by({"eve"}), IsEmpty());
  const auto mapped = machine.events_of(Event::Kind::kMapped);
  ASSERT_EQ(mapped.size(), 2u);
  EXPECT_THAT(mapped[0].words, HasSubstr("of which this one pays 8MiB"));
}

}  // namespace
}  // namespace gpumem::core
