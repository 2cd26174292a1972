#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Kept regions: they outlive the processes that have their memory, at their tenant's expense and nobody
// else's.

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Bob is guaranteed 16 of 64 MiB, ann 32; zoe may borrow. What is guaranteed is lent.
Policy kept_policy(Escalation escalation = Escalation::kWait) {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.devices[0].reclaim.lend_guarantees = true;
  policy.devices[0].reclaim.escalation = escalation;
  policy.tenants = {user("ann", 1, {{mebibytes(32), mebibytes(64)}}),
                    user("bob", 2, {{mebibytes(16), mebibytes(64)}}), user("zoe", 3, {{{}, mebibytes(64)}})};
  return policy;
}

class BrokerKeptRegion : public testing::Test {
 protected:
  explicit BrokerKeptRegion(Policy policy = kept_policy()) : machine(std::move(policy)) {
    publisher = machine.connect(2);
    ann = machine.connect(1);
    zoe = machine.connect(3);
    slice = machine.slice(publisher);
  }
  Publish kept(const std::string& name = "weights", Duration linger = {}) const {
    Publish terms;
    terms.name = name;
    terms.sharing = Sharing::kPublic;
    terms.keep = true;
    terms.linger = linger;
    return terms;
  }
  Grant publish(Bytes bytes, const Publish& terms) {
    Grant grant = machine.get(publisher, slice, bytes);
    publish(grant, terms);
    return grant;
  }
  void publish(const Grant& grant, const Publish& terms) {
    const auto version =
        machine.broker.publish(publisher, of_leases(terms, slice, Machine::leases_of(grant)), machine.now);
    ASSERT_TRUE(version) << version.error().message;
  }
  Result<MappedRegion> map(SessionId session, const std::string& name = "weights",
                           MapAs how = MapAs::kReader) {
    auto mapped = machine.broker.map_region(session, {.owner = "bob", .name = name, .how = how}, machine.now);
    machine.collect();
    return mapped;
  }
  /// The process maps it.
  ImportId use(SessionId session, const std::string& name = "weights") {
    auto mapped = map(session, name);
    EXPECT_TRUE(mapped) << mapped.error().message;
    if (!mapped) return {};
    for (const auto& [lease, extent] : mapped->imported.leases) {
      machine.driver.hold(extent.id);
      machine.held[session].push_back(extent.id);
    }
    return mapped->imported.id;
  }
  void stop(SessionId session, ImportId import, const Grant& grant) {
    machine.stop_using(session, grant);
    ASSERT_TRUE(machine.broker.release_import(session, {import}, machine.now));
    machine.collect();
  }
  bool is_there(const std::string& name = "weights") {
    for (const RegionView& view : machine.broker.regions({"", true}, "", machine.now).regions)
      if (view.region.name == name) return true;
    return false;
  }
  std::vector<SessionView> detached_sessions() const {
    std::vector<SessionView> found;
    for (const SessionView& view : machine.broker.sessions())
      if (view.detached) found.push_back(view);
    return found;
  }

  Machine machine;
  SessionId publisher, ann, zoe;
  SliceId slice;
};

TEST_F(BrokerKeptRegion, OutlivesItsPublisherAtItsTenantsExpense) {
  publish(mebibytes(8), kept());
  machine.die(publisher);
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  ASSERT_THAT(detached_sessions(), SizeIs(1));
  EXPECT_EQ(detached_sessions()[0].tenant, "bob");
  EXPECT_EQ(detached_sessions()[0].peer.pid, 0);
  EXPECT_TRUE(map(zoe));
  const auto explained = machine.broker.explain_tenant("bob", true, machine.now);
  ASSERT_TRUE(explained);
  EXPECT_EQ(explained->devices[0].regions.kept, mebibytes(8));
}

TEST_F(BrokerKeptRegion, OutlivesAPublisherThatGivesItsMemoryBack) {
  const Grant grant = publish(mebibytes(8), kept());
  ASSERT_TRUE(machine.give_back(publisher, slice, grant));
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  EXPECT_TRUE(machine.broker.close_slice(publisher, {slice}, machine.now));
  EXPECT_TRUE(map(zoe));
}

TEST_F(BrokerKeptRegion, LeavesNothingBehindWhenItIsRemoved) {
  publish(mebibytes(8), kept());
  machine.die(publisher);
  machine.die(zoe);
  const SessionId mate = machine.connect(2);
  ASSERT_TRUE(machine.broker.remove_region(mate, {"weights"}, machine.now));
  machine.collect();
  EXPECT_THAT(detached_sessions(), IsEmpty());
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerKeptRegion, IsNotRemovedByAnotherTenant) {
  publish(mebibytes(8), kept());
  machine.die(publisher);
  EXPECT_EQ(machine.broker.remove_region(zoe, {"weights"}, machine.now).error().code, Code::kNotFound);
  EXPECT_TRUE(is_there());
}

TEST_F(BrokerKeptRegion, ThatIsRemovedIsChargedToWhoeverStillHasItMapped) {
  const Grant grant = publish(mebibytes(8), kept());
  machine.die(publisher);
  const ImportId import = use(zoe);
  ASSERT_TRUE(machine.broker.remove_region(machine.connect(2), {"weights"}, machine.now));
  machine.collect();
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  EXPECT_EQ(machine.charged("zoe"), mebibytes(8));
  stop(zoe, import, grant);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerKeptRegion, StaysWithItsTenantWhileOthersReadIt) {
  const Grant grant = publish(mebibytes(8), kept());
  const ImportId import = use(zoe);
  machine.die(publisher);
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  EXPECT_EQ(machine.charged("zoe"), Bytes{});
  stop(zoe, import, grant);
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  EXPECT_TRUE(map(ann));
}

TEST_F(BrokerKeptRegion, LingersFromWhenTheLastProcessHasLeftIt) {
  const Grant grant = publish(mebibytes(8), kept("weights", seconds(10)));
  machine.pass(seconds(20));
  EXPECT_TRUE(is_there()) << "its publisher has it";
  machine.die(publisher);
  machine.pass(seconds(9));
  const ImportId import = use(zoe);
  machine.pass(seconds(20));
  EXPECT_TRUE(is_there()) << "a reader has it";
  stop(zoe, import, grant);
  machine.pass(seconds(9));
  EXPECT_TRUE(is_there());
  machine.pass(seconds(1));
  EXPECT_FALSE(is_there());
  EXPECT_TRUE(machine.is_as_new());
  EXPECT_THAT(machine.events_of(Event::Kind::kExpired), SizeIs(1));
}

TEST_F(BrokerKeptRegion, LingersOnWhenAReaderDies) {
  publish(mebibytes(8), kept("weights", seconds(10)));
  machine.die(publisher);
  use(zoe);
  machine.pass(seconds(20));
  machine.die(zoe);
  machine.pass_in_steps(seconds(10));
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerKeptRegion, HasAnEndOfItsOwnToo) {
  Publish brief = kept();
  brief.life = seconds(5);
  publish(mebibytes(8), brief);
  machine.die(publisher);
  machine.pass_in_steps(seconds(5));
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerKeptRegion, IsTakenUpByTheNextProcessOfItsTenant) {
  const Grant grant = publish(mebibytes(8), kept());
  machine.die(publisher);
  const SessionId next = machine.connect(2);
  const ImportId import = use(next);
  EXPECT_THAT(detached_sessions(), IsEmpty()) << "the process answers for it now";
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  stop(next, import, grant);
  EXPECT_THAT(detached_sessions(), SizeIs(1));
  EXPECT_TRUE(is_there());
}

TEST_F(BrokerKeptRegion, ThatIsAdoptedLivesWithItsNewOwner) {
  publish(mebibytes(8), kept());
  machine.die(publisher);
  const SessionId next = machine.connect(2);
  const auto adopted = map(next, "weights", MapAs::kOwner);
  ASSERT_TRUE(adopted) << adopted.error().message;
  EXPECT_TRUE(map(zoe));
  machine.die(zoe);
  machine.die(next);
  EXPECT_FALSE(is_there());
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerKeptRegion, IsAdoptedByItsTenantAloneAndNotFromAProcess) {
  const SessionId next = machine.connect(2);
  publish(mebibytes(8), kept());
  EXPECT_EQ(map(next, "weights", MapAs::kOwner).error().code, Code::kFailedPrecondition);
  Publish bound = kept("bound");
  bound.keep = false;
  publish(mebibytes(2), bound);
  EXPECT_EQ(map(next, "bound", MapAs::kOwner).error().code, Code::kFailedPrecondition);
  machine.die(publisher);
  EXPECT_EQ(map(zoe, "weights", MapAs::kOwner).error().code, Code::kPermissionDenied);
  EXPECT_TRUE(map(next, "weights", MapAs::kOwner));
}

TEST_F(BrokerKeptRegion, KeepsNoOtherRegionOfItsMemory) {
  const Grant grant = publish(mebibytes(8), kept());
  Publish bound = kept("bound");
  bound.keep = false;
  publish(grant, bound);
  machine.die(publisher);
  EXPECT_TRUE(is_there());
  EXPECT_FALSE(is_there("bound"));
}

TEST_F(BrokerKeptRegion, OfTheSameMemoryGoesWithTheLast) {
  const Grant grant = publish(mebibytes(8), kept("one"));
  publish(grant, kept("two"));
  machine.die(publisher);
  const SessionId mate = machine.connect(2);
  ASSERT_TRUE(machine.broker.remove_region(mate, {"one"}, machine.now));
  machine.collect();
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  ASSERT_TRUE(machine.broker.remove_region(mate, {"two"}, machine.now));
  machine.collect();
  EXPECT_EQ(machine.charged("bob"), Bytes{});
}

TEST_F(BrokerKeptRegion, CountsForItsTenantsLimitAndGivesWayToNoneOfItsOwn) {
  publish(mebibytes(60), kept());
  machine.die(publisher);
  const SessionId next = machine.connect(2);
  const RequestId more = machine.grow(next, machine.slice(next), mebibytes(8), seconds(5));
  EXPECT_FALSE(machine.is_granted(more));
  machine.pass_in_steps(seconds(5));
  EXPECT_EQ(machine.code(more), Code::kDeadlineExceeded);
  EXPECT_TRUE(is_there());
}

TEST_F(BrokerKeptRegion, WithinAGuaranteeGivesWayToNobody) {
  publish(mebibytes(16), kept());
  machine.die(publisher);
  machine.get(ann, machine.slice(ann), mebibytes(32));
  machine.get(zoe, machine.slice(zoe), mebibytes(16));
  machine.grow(ann, machine.slice(ann), mebibytes(8), seconds(5));
  machine.pass_in_steps(seconds(10));
  EXPECT_TRUE(is_there());
}

TEST_F(BrokerKeptRegion, BeyondAGuaranteeGivesWayAtOnceToWhatOthersAreGuaranteed) {
  publish(mebibytes(24), kept("old"));
  machine.pass(seconds(1));
  publish(mebibytes(24), kept("new"));
  const SliceId hers = machine.slice(ann);
  machine.die(publisher);
  const RequestId claim = machine.grow(ann, hers, mebibytes(32), seconds(60));
  EXPECT_TRUE(machine.is_granted(claim)) << machine.why(claim);
  EXPECT_NE(is_there("old"), is_there("new")) << "one is enough";
  EXPECT_EQ(machine.charged("bob"), mebibytes(24));
  EXPECT_THAT(machine.signals, IsEmpty());
}

TEST_F(BrokerKeptRegion, ThatNobodyReadsGivesWayFirst) {
  publish(mebibytes(24), kept("read"));
  publish(mebibytes(24), kept("left"));
  machine.die(publisher);
  use(zoe, "read");
  const RequestId claim = machine.grow(ann, machine.slice(ann), mebibytes(32), seconds(60));
  EXPECT_TRUE(machine.is_granted(claim)) << machine.why(claim);
  EXPECT_TRUE(is_there("read"));
  EXPECT_FALSE(is_there("left"));
}

// Only what somebody is guaranteed takes a region from its readers.
TEST_F(BrokerKeptRegion, ThatOthersWantInFairnessGivesWayWhenItsLastReaderLeaves) {
  const Grant grant = publish(mebibytes(48), kept());
  machine.die(publisher);
  const ImportId import = use(ann);
  const RequestId request = machine.grow(zoe, machine.slice(zoe), mebibytes(24), seconds(60));
  ASSERT_FALSE(machine.is_answered(request)) << machine.why(request);
  ASSERT_TRUE(is_there());
  stop(ann, import, grant);
  EXPECT_TRUE(machine.is_granted(request)) << machine.why(request);
  EXPECT_FALSE(is_there());
}

// Processes keep what they have as long as regions that none has suffice.
TEST_F(BrokerKeptRegion, GivesWayBeforeAnyProcessOfItsTenantIsAsked) {
  publish(mebibytes(16), kept());
  machine.die(publisher);
  const SessionId next = machine.connect(2);
  machine.get(next, machine.slice(next), mebibytes(32));
  const RequestId claim = machine.grow(ann, machine.slice(ann), mebibytes(32), seconds(60));
  EXPECT_TRUE(machine.is_granted(claim)) << machine.why(claim);
  EXPECT_EQ(machine.asked_of(next), Bytes{});
  EXPECT_FALSE(is_there());
}

class BrokerKeptRegionByForce : public BrokerKeptRegion {
 protected:
  BrokerKeptRegionByForce() : BrokerKeptRegion(kept_policy(Escalation::kEndSession)) {}
};

// Promise 2: whoever keeps bytes answers for them. The reader has a deadline of its own from then on.
TEST_F(BrokerKeptRegionByForce, IsAnsweredForByTheReaderThatKeepsItMapped) {
  publish(mebibytes(48), kept());
  machine.die(publisher);
  use(zoe);
  const RequestId claim = machine.grow(ann, machine.slice(ann), mebibytes(32), seconds(60));
  EXPECT_FALSE(is_there());
  EXPECT_EQ(machine.charged("zoe"), mebibytes(48));
  machine.pass_in_steps(seconds(2));
  EXPECT_THAT(machine.signals, ElementsAre(testing::Pair(zoe, Signal::kTerminate)));
  machine.die(zoe);
  EXPECT_TRUE(machine.is_granted(claim)) << machine.why(claim);
}

TEST_F(BrokerKeptRegion, IsThereAfterARestartIfItsDescriptorsAre) {
  const Grant grant = publish(mebibytes(8), kept("weights", seconds(100)));
  machine.die(publisher);
  machine.pass(seconds(50));
  machine.restart(kept_policy(), {grant});
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  ASSERT_THAT(detached_sessions(), SizeIs(1));
  ASSERT_TRUE(map(machine.connect(3)));
  machine.restart(kept_policy(), {machine.before(grant)});
  EXPECT_TRUE(is_there());
}

TEST_F(BrokerKeptRegion, LingersAcrossARestartFromWhenItWasLeft) {
  const Grant grant = publish(mebibytes(8), kept("weights", seconds(100)));
  machine.die(publisher);
  machine.pass(seconds(50));
  machine.restart(kept_policy(), {grant});
  machine.pass(seconds(49));
  EXPECT_TRUE(is_there());
  machine.pass(seconds(1));
  EXPECT_FALSE(is_there());
}

TEST_F(BrokerKeptRegion, WhoseDescriptorsAreGoneLeavesNoChargeAfterARestart) {
  publish(mebibytes(8), kept());
  machine.die(publisher);
  machine.restart(kept_policy());
  EXPECT_FALSE(is_there());
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  EXPECT_THAT(detached_sessions(), IsEmpty());
}

// The broker was away when the publisher died.
TEST_F(BrokerKeptRegion, IsKeptWhenItsPublisherDiesAcrossARestart) {
  const Grant grant = publish(mebibytes(8), kept());
  machine.restart(kept_policy(), {grant});
  machine.die(publisher);
  EXPECT_TRUE(is_there());
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
}

TEST_F(BrokerKeptRegion, FollowsItsTenantToAnotherName) {
  publish(mebibytes(8), kept());
  machine.die(publisher);
  Policy other = kept_policy();
  other.tenants[1].name = "rob";
  ASSERT_TRUE(machine.broker.apply(other, machine.now));
  machine.collect();
  EXPECT_EQ(machine.charged("rob"), mebibytes(8));
  EXPECT_TRUE(machine.broker.map_region(machine.connect(2), {.owner = {}, .name = "weights"}, machine.now));
}

TEST_F(BrokerKeptRegion, TakesNoPlaceFromAClient) {
  Policy narrow = kept_policy();
  narrow.max_sessions_per_tenant = 1;
  ASSERT_TRUE(machine.broker.apply(narrow, machine.now));
  publish(mebibytes(8), kept());
  machine.die(publisher);
  EXPECT_TRUE(machine.broker.open_session(peer_of(2), "next", machine.now));
}

TEST_F(BrokerKeptRegion, CannotBeWhatMakesNoSense) {
  const Grant grant = machine.get(publisher, slice, mebibytes(2));
  const auto code_of = [&](const Publish& terms) {
    const auto made =
        machine.broker.publish(publisher, of_leases(terms, slice, Machine::leases_of(grant)), machine.now);
    return made ? Code::kInternal : made.error().code;
  };
  Publish wrong = kept("weights", seconds(-1));
  EXPECT_EQ(code_of(wrong), Code::kInvalidArgument);
  wrong = kept("weights", seconds(1));
  wrong.keep = false;
  EXPECT_EQ(code_of(wrong), Code::kInvalidArgument);
}

// A kept region with a part that its publisher goes on to hold.
TEST_F(BrokerKeptRegion, MayBePartlyItsPublishers) {
  const Grant first = machine.get(publisher, slice, mebibytes(4));
  const Grant second = machine.get(publisher, slice, mebibytes(4));
  std::vector<LeaseId> leases = Machine::leases_of(first);
  const std::vector<LeaseId> rest = Machine::leases_of(second);
  leases.insert(leases.end(), rest.begin(), rest.end());
  ASSERT_TRUE(
      machine.broker.publish(publisher, of_leases(kept("weights", seconds(1)), slice, leases), machine.now));
  ASSERT_TRUE(machine.give_back(publisher, slice, second));
  machine.pass_in_steps(seconds(10));
  EXPECT_TRUE(is_there()) << "its publisher has some of it";
  machine.die(publisher);
  machine.pass_in_steps(seconds(1));
  EXPECT_TRUE(machine.is_as_new());
}

// It says Return, and keeps the memory: the detached session answers for nothing, it does.
TEST_F(BrokerKeptRegionByForce, OfAPublisherThatKeepsTheMemoryDelaysNoGuarantee) {
  const Grant grant = publish(mebibytes(48), kept());
  ASSERT_TRUE(machine.keep_but_give_back(publisher, slice, grant));
  EXPECT_TRUE(is_there());
  const RequestId claim = machine.grow(ann, machine.slice(ann), mebibytes(32), seconds(60));
  machine.run_jobs();
  EXPECT_FALSE(is_there()) << "given up at once";
  machine.pass_in_steps(seconds(30));
  ASSERT_THAT(machine.signals, testing::Not(IsEmpty()));
  EXPECT_EQ(machine.signals[0].first, publisher) << "whoever pins the bytes is asked, waited for and ended";
  machine.die(publisher);
  machine.pass_in_steps(seconds(5));
  machine.run_jobs();
  EXPECT_TRUE(machine.is_granted(claim)) << machine.why(claim);
}

}  // namespace
}  // namespace gpumem::core
