#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Another broker takes over: from what the one before has written down, with clients that come back or not.

namespace gpumem::core {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

constexpr Bytes kTen = mebibytes(10);

class BrokerRestore : public testing::Test {
 protected:
  BrokerRestore() {
    bob = machine.connect(2);
    slice = machine.slice(bob);
    grant = machine.get(bob, slice, kTen);
  }
  auto is_bob(bool awaited) const {
    return testing::AllOf(Field(&RestoredSession::id, bob), Field(&RestoredSession::awaited, awaited));
  }

  Machine machine;
  SessionId bob;
  SliceId slice;
  Grant grant;
};

TEST_F(BrokerRestore, ChargesWhatWasLentAndMakesThePoolOfTheRest) {
  EXPECT_THAT(machine.restart(), ElementsAre(is_bob(true)));
  EXPECT_EQ(machine.charged("bob"), kTen);
  EXPECT_EQ(machine.free(), mebibytes(54));
  EXPECT_EQ(machine.driver.handled(0), mebibytes(54));
}

TEST_F(BrokerRestore, ClientThatComesBackGoesOnWhereItWas) {
  machine.restart();
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  EXPECT_EQ(machine.charged("bob"), kTen);
  const Grant more = machine.get(bob, slice, mebibytes(4));
  EXPECT_TRUE(machine.give_back(bob, slice, machine.before(grant)));
  EXPECT_TRUE(machine.give_back(bob, slice, more));
  machine.say_goodbye(bob);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerRestore, NumbersAreNotGivenOutAgain) {
  const LeaseId last = grant.leases.back().lease;
  ASSERT_TRUE(machine.give_back(bob, slice, grant));
  machine.restart();
  ASSERT_TRUE(machine.resume(bob, {slice}, {}));
  EXPECT_GT(machine.get(bob, slice, mebibytes(2)).leases.front().lease, last);
  EXPECT_GT(machine.connect(1), bob);
}

TEST_F(BrokerRestore, WhatTheClientDoesNotClaimComesBack) {
  const Grant kept = machine.get(bob, slice, mebibytes(4));
  machine.restart();
  machine.stop_using(bob, machine.before(grant));  // it had given that back, and nobody has read it
  ASSERT_TRUE(machine.resume(bob, {slice}, {kept}));
  EXPECT_EQ(machine.charged("bob"), mebibytes(4));
  EXPECT_EQ(machine.free(), mebibytes(60));
}

TEST_F(BrokerRestore, WhatIsNotClaimedButKeptStaysCharged) {
  machine.restart();
  ASSERT_TRUE(machine.resume(bob, {slice}, {}));
  EXPECT_EQ(machine.charges("bob")[Charge::kQuarantined], kTen);
  EXPECT_EQ(machine.free(), mebibytes(54));
  machine.die(bob);
  EXPECT_EQ(machine.charged("bob"), Bytes{});
}

TEST_F(BrokerRestore, SliceThatTheClientHasClosedIsGone) {
  const SliceId other = machine.slice(bob);
  machine.restart();
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  EXPECT_EQ(machine.broker.close_slice(bob, {other}, machine.now).error().code, Code::kNotFound);
}

TEST_F(BrokerRestore, ClaimOfOthersMemoryIsRefusedAndTheSessionStaysAwaited) {
  const SessionId ann = machine.connect(1);
  const SliceId hers = machine.slice(ann);
  const Grant gift = machine.get(ann, hers, mebibytes(2));
  machine.restart();
  EXPECT_EQ(machine.resume(bob, {slice}, {grant, gift}).error().code, Code::kPermissionDenied);
  EXPECT_EQ(machine.resume(bob, {slice, hers}, {grant}).error().code, Code::kPermissionDenied);
  EXPECT_EQ(machine.resume(bob, {slice}, {grant}, {ImportId{7}}).error().code, Code::kPermissionDenied);
  EXPECT_EQ(machine.charged("ann"), mebibytes(2));
  EXPECT_TRUE(machine.resume(bob, {slice}, {grant}));
}

TEST_F(BrokerRestore, ClaimOfOldLeasesIsRefused) {
  ASSERT_TRUE(machine.give_back(bob, slice, grant));
  machine.restart();
  EXPECT_EQ(machine.resume(bob, {slice}, {grant}).error().code, Code::kPermissionDenied);
}

TEST_F(BrokerRestore, NobodyComesBackTwiceOrToASessionThatIsNotAwaited) {
  machine.restart();
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  EXPECT_EQ(machine.resume(bob, {slice}, {grant}).error().code, Code::kNotFound);
  const SessionId fresh = machine.connect(1);
  EXPECT_EQ(machine.resume(fresh, {}, {}).error().code, Code::kNotFound);
}

TEST_F(BrokerRestore, ProcessThatEndedMeanwhileCostsNothing) {
  machine.restart();
  machine.die(bob);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerRestore, ClientThatDoesNotComeBackKeepsItsChargeUntilItsProcessEnds) {
  machine.restart();
  machine.lose_lane(bob);
  EXPECT_EQ(machine.charges("bob")[Charge::kQuarantined], kTen);
  EXPECT_EQ(machine.resume(bob, {slice}, {grant}).error().code, Code::kNotFound);
  machine.die(bob);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerRestore, SessionWhoseLaneWasLostBeforeIsNotAwaited) {
  machine.lose_lane(bob);
  EXPECT_THAT(machine.restart(), ElementsAre(is_bob(false)));
  EXPECT_EQ(machine.charges("bob")[Charge::kQuarantined], kTen);
  machine.die(bob);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerRestore, MemoryOnItsWayBackIsProvedFreeAnew) {
  ASSERT_TRUE(machine.keep_but_give_back(bob, slice, grant));
  ASSERT_EQ(machine.charges("bob")[Charge::kQuarantined], kTen);
  machine.restart();
  EXPECT_EQ(machine.charges("bob")[Charge::kQuarantined], kTen);
  ASSERT_TRUE(machine.resume(bob, {slice}, {}));
  machine.stop_using(bob, machine.before(grant));
  machine.pass(std::chrono::seconds(3));
  EXPECT_EQ(machine.charged("bob"), Bytes{});
}

// Bob has published and given back; ann said that she has unmapped it, and has not.
class BrokerRestoreOfSuspects : public BrokerRestore {
 protected:
  BrokerRestoreOfSuspects() {
    Publish terms;
    terms.name = "weights";
    terms.sharing = Sharing::kPublic;
    EXPECT_TRUE(machine.broker.publish(bob, of_leases(terms, slice, Machine::leases_of(grant)), machine.now));
    ann = machine.connect(1);
    import = map();
  }
  ImportId map() {
    const auto mapped = machine.broker.map_region(ann, {.owner = "bob", .name = "weights"}, machine.now);
    EXPECT_TRUE(mapped);
    for (const auto& [lease, extent] : mapped->imported.leases) {
      machine.driver.hold(extent.id);
      machine.held[ann].push_back(extent.id);
    }
    machine.collect();
    return mapped->imported.id;
  }
  void unmap_but_keep(ImportId id) {
    EXPECT_TRUE(machine.broker.release_import(ann, {id}, machine.now));
    machine.collect();
  }
  void restart() {
    machine.restart();
    EXPECT_TRUE(machine.resume(bob, {slice}, {}));
    EXPECT_TRUE(machine.resume(ann, {}, {}));
  }

  SessionId ann;
  ImportId import;
};

TEST_F(BrokerRestoreOfSuspects, AnswerForWhatTheyKeepWhenTheHolderIsGone) {
  unmap_but_keep(import);
  ASSERT_TRUE(machine.give_back(bob, slice, grant));
  ASSERT_EQ(machine.charges("bob")[Charge::kQuarantined], kTen);
  restart();
  machine.die(bob);
  EXPECT_EQ(machine.charges("ann")[Charge::kQuarantined], kTen);
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  machine.restart();
  EXPECT_TRUE(machine.resume(ann, {}, {}));
  EXPECT_EQ(machine.charges("ann")[Charge::kQuarantined], kTen);
  machine.die(ann);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerRestoreOfSuspects, AreNoneOnceTheMemoryIsFreeOrTheirProcessIsGone) {
  unmap_but_keep(import);
  machine.stop_using(ann, grant);
  ASSERT_TRUE(machine.give_back(bob, slice, grant));
  EXPECT_TRUE(machine.broker.checkpoint().suspects.empty());
  const Grant next = machine.get(bob, slice, mebibytes(2));
  Publish terms;
  terms.name = "weights";
  terms.sharing = Sharing::kPublic;
  ASSERT_TRUE(machine.broker.publish(bob, of_leases(terms, slice, Machine::leases_of(next)), machine.now));
  unmap_but_keep(map());
  EXPECT_EQ(machine.broker.checkpoint().suspects.size(), 1u);
  map();
  EXPECT_TRUE(machine.broker.checkpoint().suspects.empty()) << "she has it mapped again";
  machine.broker.session_ended(ann, SessionEnd::kReleased, machine.now);
  machine.collect();
  EXPECT_EQ(machine.broker.checkpoint().suspects.size(), 1u);
  machine.die(ann);
  EXPECT_TRUE(machine.broker.checkpoint().suspects.empty());
}

TEST_F(BrokerRestore, WholePoolThatIsLentIsTakenOver) {
  const Grant rest = machine.get(bob, slice, mebibytes(38));
  const SessionId ann = machine.connect(1);
  machine.get(ann, machine.slice(ann), mebibytes(16));
  machine.restart();
  ASSERT_TRUE(machine.broker.settled());
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant, rest}));
  ASSERT_TRUE(machine.give_back(bob, slice, machine.before(rest)));
  EXPECT_EQ(machine.free(), mebibytes(38));
}

TEST_F(BrokerRestore, StreamOfGrpcEndsWithTheBroker) {
  Peer peer = peer_of(1);
  peer.maps = false;
  const SessionId ann = machine.broker.open_session(peer, "stream", machine.now).value();
  const SliceId hers = machine.slice(ann);
  machine.stop_using(ann, machine.get(ann, hers, mebibytes(2)));
  EXPECT_THAT(machine.restart(), ElementsAre(is_bob(true)));
  EXPECT_EQ(machine.charged("ann"), Bytes{});
}

TEST_F(BrokerRestore, ImportedMemoryStaysWithWhoUsesIt) {
  HandleBytes bytes{};
  ASSERT_TRUE(machine.broker.export_handle(bob, {slice, Machine::leases_of(grant)}, bytes, machine.now));
  const SessionId user = machine.connect(2);
  const ImportId import = machine.broker.import_handle(user, {bytes}, machine.now)->id;
  machine.collect();
  machine.restart();
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  ASSERT_TRUE(machine.resume(user, {}, {}, {import}));
  machine.say_goodbye(bob);
  EXPECT_EQ(machine.charged("bob"), kTen);
  ASSERT_TRUE(machine.broker.release_import(user, {import}, machine.now));
  machine.collect();
  machine.say_goodbye(user);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerRestore, ImportThatIsNotClaimedIsReleased) {
  HandleBytes bytes{};
  ASSERT_TRUE(machine.broker.export_handle(bob, {slice, Machine::leases_of(grant)}, bytes, machine.now));
  const SessionId user = machine.connect(2);
  ASSERT_TRUE(machine.broker.import_handle(user, {bytes}, machine.now));
  machine.collect();
  machine.restart();
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  ASSERT_TRUE(machine.resume(user, {}, {}));
  machine.say_goodbye(bob);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerRestore, MemoryOfTheBrokerBeforeCannotBeSharedAnew) {
  machine.restart();
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  EXPECT_EQ(
      machine.broker.export_handle(bob, {slice, Machine::leases_of(grant)}, {}, machine.now).error().code,
      Code::kFailedPrecondition);
}

TEST_F(BrokerRestore, ARevokedHandleStaysSo) {
  const HandleBytes kept{'k'}, revoked{'r'};
  for (const HandleBytes& bytes : {kept, revoked}) {
    ASSERT_TRUE(machine.broker.export_handle(bob, {slice, Machine::leases_of(grant)}, bytes, machine.now));
  }
  ASSERT_TRUE(machine.broker.revoke_handle(bob, {revoked}));
  machine.restart(small_policy(), {grant});
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  const SessionId user = machine.connect(2);
  EXPECT_EQ(machine.broker.import_handle(user, {revoked}, machine.now).error().code, Code::kNotFound);
  EXPECT_TRUE(machine.broker.import_handle(user, {kept}, machine.now));
}

TEST_F(BrokerRestore, KeptMemoryIsSharedAnewAndDestroyedWhenItComesBack) {
  machine.restart(small_policy(), {grant});
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  ASSERT_TRUE(machine.broker.export_handle(bob, {slice, Machine::leases_of(grant)}, {}, machine.now));
  const SessionId user = machine.connect(2);
  const auto imported = machine.broker.import_handle(user, {{}}, machine.now);
  ASSERT_TRUE(imported);
  for (const auto& [lease, extent] : imported->leases) EXPECT_TRUE(machine.driver.has_handle(extent.id));
  machine.collect();
  ASSERT_TRUE(machine.broker.release_import(user, {imported->id}, machine.now));
  ASSERT_TRUE(machine.give_back(bob, slice, machine.before(grant)));
  machine.say_goodbye(user);
  machine.say_goodbye(bob);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerRestore, KeptMemoryOfAProcessThatEndedMeanwhileIsDestroyed) {
  machine.stop_using(bob, grant);
  machine.restart(small_policy(), {grant});
  EXPECT_EQ(machine.driver.handled(0), mebibytes(64)) << "the pool and what is kept";
  machine.die(bob);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerRestore, HandleOfKeptMemoryIsRedeemedAsOftenAsWasLeft) {
  ASSERT_TRUE(machine.broker.export_handle(
      bob, {.slice = slice, .leases = Machine::leases_of(grant), .uses = 3}, {}, machine.now));
  const SessionId user = machine.connect(2);
  const ImportId first = machine.broker.import_handle(user, {{}}, machine.now)->id;
  machine.collect();
  machine.restart(small_policy(), {grant});
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  ASSERT_TRUE(machine.resume(user, {}, {}, {first}));
  EXPECT_TRUE(machine.broker.import_handle(user, {{}}, machine.now));
  EXPECT_TRUE(machine.broker.import_handle(user, {{}}, machine.now));
  EXPECT_EQ(machine.broker.import_handle(user, {{}}, machine.now).error().code, Code::kNotFound);
  machine.collect();
}

TEST_F(BrokerRestore, HandleEndsWithItsTimeOrWithoutDescriptors) {
  ASSERT_TRUE(machine.broker.export_handle(bob, {slice, Machine::leases_of(grant)}, {}, machine.now));
  machine.collect();
  const auto redeem = [&] { return machine.broker.import_handle(bob, {{}}, machine.now).error().code; };
  machine.restart(small_policy(), {grant});
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  machine.pass(std::chrono::minutes(2));
  EXPECT_EQ(redeem(), Code::kNotFound);
  machine.restart();
  ASSERT_TRUE(machine.resume(bob, {slice}, {}));
  EXPECT_EQ(redeem(), Code::kNotFound);
}

TEST_F(BrokerRestore, LoweredLimitMakesADebtOfWhatIsHeld) {
  Policy lower = small_policy();
  lower.tenants[1].quotas[0].limit = mebibytes(4);
  machine.restart(lower);
  EXPECT_EQ(machine.charged("bob"), kTen);
  EXPECT_EQ(machine.asked_of(bob), mebibytes(6));
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  EXPECT_FALSE(machine.is_granted(machine.grow(bob, slice, mebibytes(2))));
}

TEST_F(BrokerRestore, UserWhomNoRuleCoversAnyMoreKeepsWhatItHasAndMayNotGrow) {
  Policy without = small_policy();
  without.tenants.pop_back();
  machine.restart(without);
  EXPECT_EQ(machine.charged("bob"), kTen);
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  EXPECT_FALSE(machine.is_granted(machine.grow(bob, slice, mebibytes(2))));
}

TEST_F(BrokerRestore, DeclaredMemoryStaysCharged) {
  ASSERT_TRUE(machine.broker.charge(bob, {"GPU-0", mebibytes(8)}, machine.now));
  machine.collect();
  machine.restart();
  EXPECT_EQ(machine.broker.devices().front().outside, mebibytes(8));
}

TEST_F(BrokerRestore, SecondRestartBeforeAnybodyCameBackLosesNothing) {
  machine.restart();
  EXPECT_THAT(machine.restart(), ElementsAre(is_bob(true)));
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  EXPECT_EQ(machine.charged("bob"), kTen);
  EXPECT_EQ(machine.free(), mebibytes(54));
}

TEST_F(BrokerRestore, GuaranteeIsKeptForWhoCameBack) {
  const SessionId ann = machine.connect(1);
  const SliceId hers = machine.slice(ann);
  machine.restart();
  ASSERT_TRUE(machine.resume(ann, {hers}, {}));
  EXPECT_TRUE(machine.is_granted(machine.grow(ann, hers, mebibytes(16))));
}

TEST(BrokerRestoreContexts, OfAReaderWithoutASliceStaysCharged) {
  Policy policy = small_policy();
  policy.devices[0].context_overhead = mebibytes(4);
  Machine machine(policy);
  const SessionId bob = machine.connect(2), reader = machine.connect(2);
  const SliceId slice = machine.slice(bob);
  const Grant grant = machine.get(bob, slice, mebibytes(8));
  ASSERT_TRUE(machine.broker.export_handle(bob, {slice, Machine::leases_of(grant)}, {}, machine.now));
  const ImportId import = machine.broker.import_handle(reader, {{}}, machine.now)->id;
  machine.collect();
  ASSERT_EQ(machine.broker.devices().front().outside, mebibytes(8));
  machine.restart(policy, {grant});
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  ASSERT_TRUE(machine.resume(reader, {}, {}, {import}));
  EXPECT_EQ(machine.broker.devices().front().outside, mebibytes(8));
}

TEST(BrokerRestoreOfAGroup, SessionsOfATenantThatHasBecomeOneMayNotGrow) {
  Machine machine;
  const SessionId bob = machine.connect(2);
  const SliceId slice = machine.slice(bob);
  const Grant grant = machine.get(bob, slice, mebibytes(10));
  Policy after = small_policy();
  after.tenants = {parent("bob", {{{}, mebibytes(64)}}), user("carl", 3, {{{}, mebibytes(64)}}, "bob")};
  machine.restart(after);
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  EXPECT_EQ(machine.charged(user_tenant(2)), mebibytes(10));
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  EXPECT_FALSE(machine.is_granted(machine.grow(bob, slice, mebibytes(2))));
}

// A request that comes first asks sessions whose clients are still away.
TEST(BrokerRestoreOfPressure, WhoComesBackHasAWholeDeadline) {
  for (const auto away : {seconds(0), seconds(1), seconds(3)}) {
    Policy policy = small_policy();
    policy.devices[0].reclaim.lend_guarantees = true;
    policy.devices[0].reclaim.escalation = Escalation::kEndSession;
    Machine machine(policy);
    const SessionId bob = machine.connect(2);
    const SliceId bobs = machine.slice(bob);
    const Grant lent = machine.get(bob, bobs, mebibytes(64));
    const SessionId ann = machine.connect(1);
    const SliceId slice = machine.slice(ann);
    machine.restart(policy);
    ASSERT_TRUE(machine.resume(ann, {slice}, {}));
    machine.grow(ann, slice, mebibytes(8), seconds(60));
    machine.pass_in_steps(away);
    ASSERT_TRUE(machine.resume(bob, {bobs}, {lent}));
    machine.pass_in_steps(std::chrono::milliseconds(1900));
    EXPECT_THAT(machine.signals, IsEmpty());
    machine.pass_in_steps(std::chrono::milliseconds(200));
    EXPECT_THAT(machine.signals, testing::SizeIs(1));
  }
}

// The broker was killed between the records of the import's release.
TEST(BrokerRestoreOfHalfARelease, InheritedMemoryComesBack) {
  Machine machine;
  const SessionId holder = machine.connect(2);
  const SliceId slice = machine.slice(holder);
  const Grant grant = machine.get(holder, slice, mebibytes(10));
  const auto handle = machine.broker.export_handle(
      holder, of_leases(ExportHandle{}, slice, Machine::leases_of(grant)), new_handle(), machine.now);
  ASSERT_TRUE(handle);
  const SessionId reader = machine.connect(2);
  const auto imported = machine.broker.import_handle(reader, {handle->handle}, machine.now);
  ASSERT_TRUE(imported);
  machine.collect();
  machine.die(holder);
  ASSERT_EQ(machine.charged("bob"), mebibytes(10)) << "the reader has inherited it";
  machine.restart(small_policy(), {}, {Checkpoint::ImportGone{imported->id}});
  ASSERT_TRUE(machine.resume(reader, {}, {}));
  machine.pass_in_steps(Store::kLongestPause);
  EXPECT_EQ(machine.charged("bob"), Bytes{});
}

}  // namespace
}  // namespace gpumem::core
