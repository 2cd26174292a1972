#include <gmock/gmock.h>

#include <cstring>

#include "tests/unit/core/machine.h"

// Memory that several sessions of a tenant use: handles, imports, and who answers for the bytes.

namespace gpumem::core {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::Contains;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

// Two sessions of bob's, one of ann's. The first of bob's lends.
class BrokerShare : public testing::Test {
 protected:
  explicit BrokerShare(Policy policy = small_policy()) : machine(std::move(policy)) {
    lender = machine.connect(2);
    user = machine.connect(2);
    ann = machine.connect(1);
    slice = machine.slice(lender);
  }
  static Policy ending() {
    Policy policy = small_policy();
    policy.devices[0].reclaim.lend_guarantees = true;
    policy.devices[0].reclaim.escalation = Escalation::kEndSession;
    return policy;
  }
  HandleBytes new_handle() {
    HandleBytes bytes{};
    bytes.back() = static_cast<char>(++handles_);
    return bytes;
  }
  Result<HandleBytes> make(const Grant& grant, ExportHandle terms = {}) {
    const HandleBytes bytes = new_handle();
    auto made = machine.broker.export_handle(lender, of_leases(terms, slice, Machine::leases_of(grant)),
                                             bytes, machine.now);
    if (!made) return made.error();
    return bytes;
  }
  /// The process of `session` maps the handle's memory.
  ImportId import(SessionId session, const HandleBytes& handle) {
    auto imported = machine.broker.import_handle(session, {handle}, machine.now);
    EXPECT_TRUE(imported) << imported.error().message;
    if (!imported) return {};
    for (const auto& [lease, extent] : imported->leases) {
      machine.driver.hold(extent.id);
      machine.held[session].push_back(extent.id);
    }
    return imported->id;
  }
  void release(SessionId session, ImportId import, const Grant& grant) {
    machine.stop_using(session, grant);
    EXPECT_TRUE(machine.broker.release_import(session, {import}, machine.now));
    machine.collect();
  }
  Code import_fails(SessionId session, const HandleBytes& handle) {
    auto imported = machine.broker.import_handle(session, {handle}, machine.now);
    EXPECT_FALSE(imported);
    return imported ? Code::kInternal : imported.error().code;
  }
  Bytes slices_of(SessionId session) {
    for (const SessionView& view : machine.broker.sessions()) {
      Bytes sum;
      if (view.id != session) continue;
      for (const SliceView& one : view.slices) sum += one.charged;
      return sum;
    }
    return {};
  }

  Machine machine;
  SessionId lender, user, ann;
  SliceId slice;

 private:
  int handles_ = 0;
};

TEST_F(BrokerShare, AHandleNamesARangeOnce) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  const auto handle = make(grant, {.offset = mebibytes(1), .bytes = mebibytes(2)});
  ASSERT_TRUE(handle);
  const auto imported = machine.broker.import_handle(user, {*handle}, machine.now);
  ASSERT_TRUE(imported);
  EXPECT_EQ(imported->offset, mebibytes(1));
  EXPECT_EQ(imported->bytes, mebibytes(2));
  EXPECT_EQ(imported->leases.size(), grant.leases.size());
  EXPECT_EQ(import_fails(user, *handle), Code::kNotFound) << "used up";
  EXPECT_EQ(machine.charged("bob"), mebibytes(4)) << "charged once";
}

TEST_F(BrokerShare, AHandleIsForItsTenantItsTimeAndItsUses) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  const auto handle = make(grant, {.life = seconds(5), .uses = 3});
  ASSERT_TRUE(handle);
  EXPECT_EQ(import_fails(ann, *handle), Code::kNotFound);
  HandleBytes guessed = *handle;
  guessed.front() ^= 1;
  EXPECT_EQ(import_fails(user, guessed), Code::kNotFound);
  import(user, *handle);
  import(user, *handle);
  machine.pass(seconds(5));
  EXPECT_EQ(import_fails(user, *handle), Code::kNotFound) << "expired";
}

TEST_F(BrokerShare, AHandleEndsWithAnyOfItsMemory) {
  const Grant kept = machine.get(lender, slice, mebibytes(2));
  const Grant given = machine.get(lender, slice, mebibytes(2));
  Grant both = kept;
  both.leases.insert(both.leases.end(), given.leases.begin(), given.leases.end());
  const auto of_kept = make(kept);
  const auto of_both = make(both);
  ASSERT_TRUE(of_kept && of_both);
  ASSERT_TRUE(machine.give_back(lender, slice, given));
  EXPECT_EQ(import_fails(user, *of_both), Code::kNotFound);
  import(user, *of_kept);
}

TEST_F(BrokerShare, AHandleEndsWithItsSession) {
  const auto handle = make(machine.get(lender, slice, mebibytes(2)));
  ASSERT_TRUE(handle);
  machine.lose_lane(lender);
  EXPECT_EQ(import_fails(user, *handle), Code::kNotFound);
}

TEST_F(BrokerShare, ARevokedHandleIsRedeemedNoMoreAndItsImportsStay) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  const auto handle = make(grant, {.uses = 3});
  ASSERT_TRUE(handle);
  const ImportId import = this->import(user, *handle);
  EXPECT_TRUE(machine.broker.revoke_handle(lender, {*handle}));
  EXPECT_EQ(import_fails(user, *handle), Code::kNotFound);
  EXPECT_EQ(machine.broker.revoke_handle(lender, {*handle}).error().code, Code::kNotFound) << "once";
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_EQ(machine.charges("bob")[Charge::kActive], mebibytes(4)) << "the importer has it";
  release(user, import, grant);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerShare, AHandleIsRevokedByTheSessionThatMadeIt) {
  const auto handle = make(machine.get(lender, slice, mebibytes(4)));
  ASSERT_TRUE(handle);
  HandleBytes guessed = *handle;
  guessed.front() ^= 1;
  EXPECT_EQ(machine.broker.revoke_handle(lender, {guessed}).error().code, Code::kNotFound);
  EXPECT_EQ(machine.broker.revoke_handle(user, {*handle}).error().code, Code::kNotFound)
      << "of the same tenant";
  EXPECT_EQ(machine.broker.revoke_handle(ann, {*handle}).error().code, Code::kNotFound);
  import(user, *handle);
}

TEST_F(BrokerShare, RevokedHandlesMakeRoomForOthers) {
  const Grant grant = machine.get(lender, slice, mebibytes(2));
  for (std::size_t i = 0; i < 3 * Handles::kMostOfSession; ++i) {
    HandleBytes bytes{};
    std::memcpy(bytes.data(), &i, sizeof i);
    ASSERT_TRUE(machine.broker.export_handle(lender, {slice, Machine::leases_of(grant)}, bytes, machine.now));
    ASSERT_TRUE(machine.broker.revoke_handle(lender, {bytes}));
  }
}

TEST_F(BrokerShare, WhatCannotBeAHandleIsRefused) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  EXPECT_EQ(make(grant, {.offset = mebibytes(3), .bytes = mebibytes(2)}).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(make(grant, {.offset = mebibytes(4)}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make(grant, {.offset = {UINT64_MAX}, .bytes = mebibytes(2)}).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(make(grant, {.life = std::chrono::hours(25)}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make(grant, {.uses = 1'000'001}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make(Grant{}).error().code, Code::kInvalidArgument) << "of nothing";
  Grant twice = grant;
  twice.leases.push_back(twice.leases.front());
  EXPECT_EQ(make(twice).error().code, Code::kNotFound);
  std::swap(lender, user);
  EXPECT_EQ(make(grant).error().code, Code::kNotFound) << "another session's";
}

TEST_F(BrokerShare, WhatIsNotAcceptedIsNotShared) {
  const RequestId id = machine.grow(lender, slice, mebibytes(2));
  EXPECT_EQ(make(machine.answers.at(id).value()).error().code, Code::kNotFound);
}

TEST_F(BrokerShare, HandlesAndImportsAreCounted) {
  const Grant grant = machine.get(lender, slice, mebibytes(2));
  for (std::size_t i = 0; i < Handles::kMostOfSession; ++i) {
    HandleBytes bytes{};
    std::memcpy(bytes.data(), &i, sizeof i);
    bytes.back() = 1;
    ASSERT_TRUE(machine.broker.export_handle(
        lender, {.slice = slice, .leases = Machine::leases_of(grant), .life = seconds(1)}, bytes,
        machine.now));
  }
  EXPECT_EQ(make(grant).error().code, Code::kResourceExhausted);
  machine.pass(seconds(1));
  const auto handle = make(grant, {.uses = Imports::kMostOfSession + 1});
  ASSERT_TRUE(handle) << "those that have expired make room";
  for (std::size_t i = 0; i < Imports::kMostOfSession; ++i)
    ASSERT_TRUE(machine.broker.import_handle(user, {*handle}, machine.now));
  EXPECT_EQ(import_fails(user, *handle), Code::kResourceExhausted);
}

TEST_F(BrokerShare, MemoryPassesToWhoUsesItWhenItIsGivenBack) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  const ImportId import = this->import(user, *make(grant));
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_EQ(machine.charges("bob")[Charge::kActive], mebibytes(4))
      << "not quarantined: it is known who has it";
  EXPECT_EQ(slices_of(lender), Bytes{});
  EXPECT_TRUE(machine.broker.close_slice(lender, {slice}, machine.now));
  release(user, import, grant);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerShare, MemoryPassesOnFromUserToUser) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  const auto handle = make(grant, {.uses = 3});
  const SessionId third = machine.connect(2);
  const ImportId first = import(user, *handle);
  const ImportId again = machine.broker.import_handle(user, {*handle}, machine.now).value().id;
  import(third, *handle);
  machine.die(lender);
  EXPECT_TRUE(machine.broker.release_import(user, {first}, machine.now));
  EXPECT_EQ(machine.charged("bob"), mebibytes(4)) << "it has another import of it";
  release(user, again, grant);
  EXPECT_EQ(machine.charges("bob")[Charge::kActive], mebibytes(4)) << "the third has it";
  machine.die(third);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerShare, ReleasingWhatTheLenderHoldsFreesNothing) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  const ImportId import = this->import(user, *make(grant));
  release(user, import, grant);
  EXPECT_EQ(machine.charges("bob")[Charge::kActive], mebibytes(4));
  EXPECT_EQ(machine.broker.release_import(user, {import}, machine.now).error().code, Code::kNotFound);
  EXPECT_EQ(machine.broker.release_import(ann, {import}, machine.now).error().code, Code::kNotFound);
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerShare, ReleasingAnImportOfItsOwnMemoryLeavesTheSliceAsItWas) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  const auto imported = machine.broker.import_handle(lender, {*make(grant)}, machine.now);
  ASSERT_TRUE(machine.broker.release_import(lender, {imported->id}, machine.now));
  machine.collect();
  EXPECT_EQ(machine.charges("bob")[Charge::kActive], mebibytes(4));
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerShare, InheritedMemoryIsNotReturnedAsASlices) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  import(user, *make(grant));
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  const auto leases = Machine::leases_of(grant);
  EXPECT_FALSE(machine.broker.give_back(user, {SliceId{}, leases}, machine.now));
  EXPECT_FALSE(machine.broker.give_back(lender, {slice, leases}, machine.now)) << "nor again by the lender";
}

TEST_F(BrokerShare, AUserThatLosesItsLaneAnswersForWhatItMaps) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  import(user, *make(grant));
  machine.lose_lane(user);
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_EQ(machine.charges("bob")[Charge::kQuarantined], mebibytes(4));
  machine.die(user);
  EXPECT_TRUE(machine.is_as_new());
  EXPECT_THAT(machine.forgotten, Contains(user));
}

TEST_F(BrokerShare, AUserThatEndsIsForgotten) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  import(user, *make(grant));
  machine.die(user);
  EXPECT_THAT(machine.forgotten, Contains(user));
  EXPECT_EQ(machine.charged("bob"), mebibytes(4));
}

TEST_F(BrokerShare, AUserThatSaidGoodbyeIsForgottenWithTheMemory) {
  const Grant grant = machine.get(lender, slice, mebibytes(4));
  import(user, *make(grant));
  machine.say_goodbye(user);
  EXPECT_THAT(machine.forgotten, IsEmpty()) << "it may have lied";
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_THAT(machine.forgotten, Contains(user));
  EXPECT_TRUE(machine.is_as_new());
}

// ---- Who answers ----

struct BrokerShareEnding : BrokerShare {
  BrokerShareEnding() : BrokerShare(ending()) {
    grant = machine.get(lender, slice, mebibytes(64));
    handle = *make(grant, {.life = std::chrono::hours(1), .uses = 8});
  }
  RequestId claim() { return machine.grow(ann, machine.slice(ann), mebibytes(16), minutes(5)); }
  /// The longest that the claim may wait: the deadline and the grace of the device.
  Duration promised() const {
    const ReclaimPolicy& reclaim = machine.broker.policy().devices[0].reclaim;
    return reclaim.deadline + reclaim.grace;
  }
  Duration deadline() const { return machine.broker.policy().devices[0].reclaim.deadline; }
  /// As whoever is signalled with SIGKILL does.
  void pass_and_let_the_killed_die(Duration time) {
    for (const TimePoint end = machine.now + time; machine.now < end;) {
      machine.pass_in_steps(std::chrono::milliseconds(100));
      for (const auto& [session, signal] : std::exchange(machine.signals, {})) {
        seen.emplace_back(session, signal);
        if (signal == Signal::kKill && machine.held.contains(session)) machine.die(session);
      }
    }
  }
  RequestId claim_until_just_before_the_deadline() {
    const RequestId id = claim();
    pass_and_let_the_killed_die(deadline() - kMoment);
    return id;
  }
  void pass_the_rest_of_what_is_promised() { pass_and_let_the_killed_die(promised() - deadline() + kMoment); }

  static constexpr Duration kMoment = std::chrono::milliseconds(100);
  Grant grant;
  HandleBytes handle{};
  std::vector<std::pair<SessionId, Signal>> seen;
};

TEST_F(BrokerShareEnding, UsersAreAskedTogetherWithTheLender) {
  import(user, handle);
  const RequestId id = claim();
  EXPECT_EQ(machine.asked_of(lender), mebibytes(16));
  EXPECT_EQ(machine.asked_of(user), mebibytes(16));
  EXPECT_EQ(machine.broker.devices()[0].asked_back, mebibytes(16)) << "the same bytes, told once";
  EXPECT_EQ(import_fails(user, handle), Code::kUnavailable) << "nobody else is let in";
  machine.cancel(id);
  EXPECT_EQ(machine.asked_of(user), Bytes{});
  import(user, handle);
}

TEST_F(BrokerShareEnding, LenderAndUserThatKeepItEndInTime) {
  import(user, handle);
  const RequestId id = claim();
  pass_and_let_the_killed_die(promised());
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  EXPECT_THAT(seen,
              testing::IsSupersetOf({Pair(lender, Signal::kTerminate), Pair(user, Signal::kTerminate)}));
}

TEST_F(BrokerShareEnding, ALenderAndAllItsUsersAreEndedAtOnceAndInTime) {
  std::vector<SessionId> all{lender, user, machine.connect(2), machine.connect(2), machine.connect(2)};
  for (const SessionId one : std::span(all).subspan(1)) import(one, handle);
  const auto expect_each_sent = [&](Signal signal) {
    std::vector<std::pair<SessionId, Signal>> expected;
    for (const SessionId one : all) expected.emplace_back(one, signal);
    EXPECT_THAT(std::exchange(seen, {}), testing::UnorderedElementsAreArray(expected));
  };
  const RequestId id = claim_until_just_before_the_deadline();
  EXPECT_THAT(seen, IsEmpty());
  pass_and_let_the_killed_die(kMoment);
  expect_each_sent(Signal::kTerminate);
  pass_and_let_the_killed_die(promised() - deadline() - kMoment);
  EXPECT_THAT(seen, IsEmpty());
  pass_and_let_the_killed_die(kMoment);
  expect_each_sent(Signal::kKill);
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
}

TEST_F(BrokerShareEnding, AUserThatLetsGoAfterSigtermIsNotKilled) {
  const ImportId import = this->import(user, handle);
  const RequestId id = claim();
  pass_and_let_the_killed_die(deadline());
  ASSERT_THAT(seen, UnorderedElementsAre(Pair(lender, Signal::kTerminate), Pair(user, Signal::kTerminate)));
  release(user, import, grant);
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  pass_and_let_the_killed_die(2 * promised());
  EXPECT_EQ(seen.size(), 2u);
}

TEST_F(BrokerShareEnding, AUserWhoseReleaseIsReadLateGetsNoSignal) {
  const ImportId import = this->import(user, handle);
  const RequestId id = claim();
  pass_and_let_the_killed_die(deadline());
  ASSERT_THAT(seen, Contains(Pair(user, Signal::kTerminate)));
  machine.broker.hold_signal(user, machine.now);  // in place of it
  seen.clear();
  release(user, import, grant);
  pass_and_let_the_killed_die(std::chrono::seconds(1));
  EXPECT_THAT(seen, IsEmpty());
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  pass_and_let_the_killed_die(2 * promised());
  EXPECT_THAT(seen, IsEmpty());
}

TEST_F(BrokerShareEnding, AUserThatHasLetGoOfNothingGetsTheSignalThatWasHeldBack) {
  import(user, handle);
  claim();
  pass_and_let_the_killed_die(deadline());
  machine.broker.hold_signal(user, machine.now);
  seen.clear();
  pass_and_let_the_killed_die(std::chrono::seconds(1));
  EXPECT_THAT(seen, Contains(Pair(user, Signal::kTerminate)));
}

TEST_F(BrokerShareEnding, AUserThatKeepsWhatTheLenderGaveBackEndsInTime) {
  const ImportId import = this->import(user, handle);
  ASSERT_TRUE(import);
  const RequestId id = claim();
  machine.pass_in_steps(machine.broker.policy().devices[0].reclaim.deadline / 2);
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_EQ(machine.asked_of(user), mebibytes(16));
  pass_and_let_the_killed_die(promised() - machine.broker.policy().devices[0].reclaim.deadline / 2);
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  EXPECT_THAT(seen, UnorderedElementsAre(Pair(user, Signal::kTerminate), Pair(user, Signal::kKill)))
      << "the lender did what it was asked for";
}

TEST_F(BrokerShareEnding, AUserThatLetsGoInTimeLives) {
  const ImportId import = this->import(user, handle);
  const RequestId id = claim();
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  release(user, import, grant);
  EXPECT_TRUE(machine.is_granted(id));
  pass_and_let_the_killed_die(2 * promised());
  EXPECT_THAT(seen, IsEmpty());
}

TEST_F(BrokerShareEnding, AUserThatOnlySaysThatItLetGoIsFoundAndEndedInTime) {
  const ImportId import = this->import(user, handle);
  ASSERT_TRUE(machine.broker.release_import(user, {import}, machine.now));  // and keeps the memory mapped
  const RequestId id = claim_until_just_before_the_deadline();
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  pass_the_rest_of_what_is_promised();
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  EXPECT_THAT(seen, Contains(Pair(user, Signal::kKill)));
}

TEST_F(BrokerShareEnding, AUserThatSaidGoodbyeAndKeptTheMemoryIsFoundAndEnded) {
  import(user, handle);
  machine.broker.session_ended(user, SessionEnd::kReleased, machine.now);
  machine.collect();
  const RequestId id = claim_until_just_before_the_deadline();
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  pass_the_rest_of_what_is_promised();
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  EXPECT_THAT(seen, Contains(Pair(user, Signal::kKill)));
}

// Each of `grants` is imported by `session` and given back by the lender, so that it is inherited; then the
// session says of one after the other, just before its deadline, that it has let go of it, and keeps all
// mapped.
struct BrokerShareBatches : BrokerShareEnding {
  BrokerShareBatches() {
    machine.stop_using(lender, grant);
    EXPECT_TRUE(machine.broker.give_back(lender, {slice, Machine::leases_of(grant)}, machine.now));
    machine.collect();
    for (int i = 0; i < 7; ++i) grants.push_back(machine.get(lender, slice, mebibytes(8)));
  }
  void expect_granted_in_time(SessionId session) {
    std::vector<ImportId> imports;
    for (const Grant& one : grants) imports.push_back(import(session, *make(one)));
    for (const Grant& one : grants) ASSERT_TRUE(machine.keep_but_give_back(lender, slice, one));
    const RequestId id = machine.grow(ann, machine.slice(ann), machine.free() + mebibytes(8), minutes(5));
    const TimePoint end = machine.now + promised();
    for (const ImportId one : imports) {
      pass_and_let_the_killed_die(std::min(deadline() - std::chrono::milliseconds(100), end - machine.now));
      if (machine.broker.knows(session)) (void)machine.broker.release_import(session, {one}, machine.now);
      machine.collect();
    }
    pass_and_let_the_killed_die(end - machine.now);
    EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  }
  std::vector<Grant> grants;
};

TEST_F(BrokerShareBatches, OfLiesByAUserGainNoTime) { expect_granted_in_time(user); }

TEST_F(BrokerShareEnding, ALenderThatOnlySaysThatItGaveBackIsFoundAndEndedInTime) {
  const ImportId import = this->import(user, handle);
  const RequestId id = claim_until_just_before_the_deadline();
  ASSERT_TRUE(machine.keep_but_give_back(lender, slice, grant));
  release(user, import, grant);
  pass_the_rest_of_what_is_promised();
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  EXPECT_THAT(seen, Contains(Pair(lender, Signal::kKill)));
}

TEST_F(BrokerShareBatches, OfLiesByTheLenderItselfGainNoTime) { expect_granted_in_time(lender); }

TEST_F(BrokerShareEnding, NobodyIsLetInWhileTheLenderIsBeingEnded) {
  const RequestId id = claim();
  machine.pass_in_steps(deadline());
  EXPECT_EQ(machine.asked_of(lender), Bytes{}) << "it is beyond asking";
  EXPECT_EQ(import_fails(user, handle), Code::kUnavailable);
  machine.die(lender);
  EXPECT_TRUE(machine.is_granted(id));
}

TEST_F(BrokerShareEnding, NobodyIsLetInAfterTheLenderSaidThatItHasNothing) {
  claim();
  machine.say_spent(lender);
  EXPECT_EQ(import_fails(user, handle), Code::kUnavailable);
}

TEST_F(BrokerShareEnding, AUserThatReallyLetGoIsNotEndedWithALenderThatKeepsItsMemory) {
  const ImportId import = this->import(user, handle);
  release(user, import, grant);
  const RequestId id = claim();
  pass_and_let_the_killed_die(promised());
  EXPECT_TRUE(machine.is_granted(id));
  EXPECT_THAT(seen, UnorderedElementsAre(Pair(lender, Signal::kTerminate), Pair(lender, Signal::kKill)));
}

TEST_F(BrokerShare, SessionsOfOneProcessThatSaidGoodbyeDoNotPileUp) {
  const Grant grant = machine.get(lender, slice, mebibytes(2));
  const auto handle = make(grant, {.uses = 1000});
  Peer worker = peer_of(2);
  worker.started = 7;
  for (int i = 0; i < 100; ++i) {
    const SessionId job = machine.broker.open_session(worker, "job", machine.now).value();
    const auto imported = machine.broker.import_handle(job, {*handle}, machine.now);
    ASSERT_TRUE(machine.broker.release_import(job, {imported->id}, machine.now));
    machine.say_goodbye(job);
  }
  EXPECT_LE(machine.broker.session_count(), 4U) << "the three, and one that stands for the process";
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_EQ(machine.broker.session_count(), 3U);
}

TEST_F(BrokerShareEnding, AProcessThatCouldNotBeEndedImportsNothing) {
  Peer peer = peer_of(2);
  peer.can_be_ended = false;
  const SessionId beyond = machine.broker.open_session(peer, "", machine.now).value();
  EXPECT_EQ(import_fails(beyond, handle), Code::kPermissionDenied);
}

}  // namespace
}  // namespace gpumem::core
