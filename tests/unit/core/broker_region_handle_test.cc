#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Handles of regions: who makes them, who redeems them, and what ends them.

namespace gpumem::core {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

// The tenants lab, with ann and bob, and zoe, who belongs to nobody.
Policy handle_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.tenants = {parent("lab", {{{}, mebibytes(64)}}), user("ann", 1, {{{}, mebibytes(64)}}, "lab"),
                    user("bob", 2, {{{}, mebibytes(64)}}, "lab"), user("zoe", 3, {{{}, mebibytes(64)}})};
  return policy;
}

class BrokerRegionHandle : public testing::Test {
 protected:
  BrokerRegionHandle() {
    publisher = machine.connect(2);
    mate = machine.connect(2);
    ann = machine.connect(1);
    zoe = machine.connect(3);
    slice = machine.slice(publisher);
    grant = machine.get(publisher, slice, mebibytes(4));
  }
  RegionId publish(Sharing sharing, bool keep = false) {
    RegionTerms terms;
    terms.name = "weights";
    terms.sharing = sharing;
    terms.keep = keep;
    const auto version =
        machine.broker.publish(publisher, slice, Machine::leases_of(grant), terms, machine.now);
    EXPECT_TRUE(version);
    return version ? *version : RegionId{};
  }
  struct Terms {
    std::uint64_t version = Regions::kNewest;
    std::uint64_t uses = 1;
    Duration life = minutes(1);
  };
  Result<HandleBytes> make(SessionId session, Terms terms) {
    HandleBytes bytes{};
    bytes.back() = static_cast<char>(++handles_ & 0x7f);
    bytes[60] = static_cast<char>(handles_ >> 7);
    auto made = machine.broker.export_region(
        session, {"bob", "weights", terms.version, machine.now + terms.life, terms.uses}, bytes, machine.now);
    if (!made) return made.error();
    return bytes;
  }
  Result<HandleBytes> make(SessionId session) { return make(session, {}); }
  HandleBytes handle(SessionId session, std::uint64_t uses = 100) {
    const auto made = make(session, {.uses = uses});
    EXPECT_TRUE(made) << made.error().message;
    return made ? *made : HandleBytes{};
  }
  Result<MappedRegion> redeem(SessionId session, const HandleBytes& bytes) {
    return machine.broker.map_handle(session, bytes, machine.now);
  }
  Code fails(SessionId session, const HandleBytes& bytes) {
    const auto mapped = redeem(session, bytes);
    return mapped ? Code::kInternal : mapped.error().code;
  }

  Machine machine{handle_policy()};
  SessionId publisher, mate, ann, zoe;
  SliceId slice;
  Grant grant;

 private:
  int handles_ = 0;
};

TEST_F(BrokerRegionHandle, MapsItsVersionAsItsNameDoes) {
  const RegionId first = publish(Sharing::kPrivate);
  const HandleBytes named = handle(publisher);
  publish(Sharing::kPrivate);
  const auto mapped = redeem(mate, named);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->version, first) << "not the newest of later";
  EXPECT_EQ(mapped->imported.bytes, mebibytes(4));
  EXPECT_EQ(machine.charged("bob"), mebibytes(4)) << "charged once";
  EXPECT_TRUE(machine.broker.release_import(mate, mapped->imported.id, machine.now));
}

TEST_F(BrokerRegionHandle, IsForWhomTheRegionIsSharedWithAndForNobodyElse) {
  publish(Sharing::kGroup);
  const HandleBytes named = handle(publisher);
  HandleBytes unknown{};
  const std::string nothing = redeem(zoe, unknown).error().message;
  EXPECT_TRUE(redeem(ann, named)) << "of another tenant";
  EXPECT_EQ(fails(zoe, named), Code::kNotFound);
  EXPECT_EQ(redeem(zoe, named).error().message, nothing) << "as if there were none";
}

TEST_F(BrokerRegionHandle, NobodyMakesOneOfWhatHeMayNotMap) {
  publish(Sharing::kGroup);
  EXPECT_EQ(make(zoe).error().code, Code::kNotFound);
  EXPECT_EQ(make(publisher, {.version = 77}).error().code, Code::kNotFound);
  EXPECT_TRUE(redeem(mate, handle(ann))) << "a reader names it, too";
}

TEST_F(BrokerRegionHandle, IsNotMoreThanItsRedeemerMayWhoeverMadeIt) {
  publish(Sharing::kPrivate);
  EXPECT_EQ(fails(ann, handle(publisher)), Code::kNotFound);
}

TEST_F(BrokerRegionHandle, EndsWhenItIsUsedUpExpiresOrIsRevoked) {
  publish(Sharing::kPublic);
  const HandleBytes once = handle(publisher, 1);
  EXPECT_EQ(fails(zoe, HandleBytes{}), Code::kNotFound);
  EXPECT_TRUE(redeem(zoe, once));
  EXPECT_EQ(fails(zoe, once), Code::kNotFound);
  const HandleBytes revoked = handle(publisher);
  EXPECT_EQ(machine.broker.revoke_handle(mate, revoked).error().code, Code::kNotFound) << "not its own";
  EXPECT_TRUE(machine.broker.revoke_handle(publisher, revoked));
  EXPECT_EQ(fails(zoe, revoked), Code::kNotFound);
  const HandleBytes expired = handle(publisher);
  machine.pass(minutes(1));
  EXPECT_EQ(fails(zoe, expired), Code::kNotFound);
}

TEST_F(BrokerRegionHandle, WhoeverMayNotRedeemItUsesNothingUp) {
  publish(Sharing::kGroup);
  const HandleBytes once = handle(publisher, 1);
  EXPECT_EQ(fails(zoe, once), Code::kNotFound);
  EXPECT_TRUE(redeem(ann, once));
}

TEST_F(BrokerRegionHandle, EndsWithTheRegionAndWithTheSessionThatMadeIt) {
  publish(Sharing::kPublic);
  const HandleBytes of_ann = handle(ann), of_bob = handle(publisher);
  const auto mapped = redeem(zoe, of_bob);
  ASSERT_TRUE(mapped);
  machine.broker.session_ended(ann, SessionEnd::kReleased, machine.now);
  EXPECT_EQ(fails(zoe, of_ann), Code::kNotFound);
  ASSERT_TRUE(machine.broker.remove_region(publisher, "weights", Regions::kNewest, machine.now));
  EXPECT_EQ(fails(zoe, of_bob), Code::kNotFound);
  EXPECT_TRUE(machine.broker.checkpoint().region_handles.empty());
  EXPECT_TRUE(machine.broker.release_import(zoe, mapped->imported.id, machine.now)) << "what is mapped stays";
}

TEST_F(BrokerRegionHandle, IsNoHandleOfMemoryAndTheOtherWayRound) {
  publish(Sharing::kPublic);
  const HandleBytes named = handle(publisher);
  EXPECT_EQ(machine.broker.import_handle(mate, named, machine.now).error().code, Code::kNotFound);
  HandleBytes memory{};
  memory.back() = 'm';
  ASSERT_TRUE(machine.broker.export_handle(publisher, slice, Machine::leases_of(grant),
                                           {{}, {}, machine.now + minutes(1), 1}, memory, machine.now));
  EXPECT_EQ(fails(mate, memory), Code::kNotFound);
}

TEST_F(BrokerRegionHandle, LivesForADayAndIsRedeemedAMillionTimesAtMost) {
  publish(Sharing::kPublic);
  EXPECT_EQ(make(publisher, {.life = hours(25)}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make(publisher, {.life = {}}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make(publisher, {.uses = 1'000'001}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make(publisher, {.uses = 0}).error().code, Code::kInvalidArgument);
}

TEST_F(BrokerRegionHandle, CountsAmongTheHandlesOfItsSession) {
  publish(Sharing::kPublic);
  for (std::size_t i = 0; i < Handles::kMostOfSession; ++i) ASSERT_TRUE(make(publisher)) << i;
  EXPECT_EQ(make(publisher).error().code, Code::kResourceExhausted);
  EXPECT_TRUE(make(ann)) << "another's do not count";
  machine.pass(minutes(1));
  EXPECT_TRUE(make(publisher)) << "the others have expired";
}

// They all may be of one region, whose end is one event.
TEST_F(BrokerRegionHandle, ATenantHas4096ThatNobodyHasRedeemed) {
  publish(Sharing::kPublic);
  std::vector<SessionId> readers;
  for (std::size_t left = Handles::kMostOfTenant; left > 0; left -= Handles::kMostOfSession) {
    readers.push_back(machine.connect(3));
    for (std::size_t i = 0; i < Handles::kMostOfSession; ++i) ASSERT_TRUE(make(readers.back())) << i;
  }
  EXPECT_EQ(make(zoe).error().code, Code::kResourceExhausted);
  EXPECT_TRUE(make(ann)) << "another's do not count";
  machine.broker.session_ended(readers.front(), SessionEnd::kReleased, machine.now);
  EXPECT_TRUE(make(zoe)) << "one session's have ended";
  machine.pass(minutes(1));
  for (std::size_t i = 0; i < Handles::kMostOfSession; ++i)
    ASSERT_TRUE(make(zoe)) << "expired, of others too";
  ASSERT_TRUE(machine.broker.remove_region(publisher, "weights", Regions::kNewest, machine.now));
  EXPECT_TRUE(machine.broker.checkpoint().region_handles.empty());
}

TEST_F(BrokerRegionHandle, CountsWithTheTenantThatItsSessionComesTo) {
  publish(Sharing::kPublic);
  const SessionId second = machine.connect(3);
  ASSERT_TRUE(make(zoe));
  Policy other = handle_policy();
  other.tenants.back().name = "zara";
  ASSERT_TRUE(machine.broker.apply(other, machine.now));
  for (std::size_t i = 0; i < Handles::kMostOfSession; ++i) ASSERT_TRUE(make(second)) << i;
  machine.broker.session_ended(zoe, SessionEnd::kReleased, machine.now);
  machine.broker.session_ended(second, SessionEnd::kReleased, machine.now);
  EXPECT_TRUE(machine.broker.checkpoint().region_handles.empty());
}

TEST_F(BrokerRegionHandle, TakesAKeptRegionUpAsItsNameDoes) {
  publish(Sharing::kPrivate, true);
  const HandleBytes named = handle(mate);
  ASSERT_TRUE(machine.give_back(publisher, slice, grant));
  const auto mapped = redeem(mate, named);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(machine.charged("bob"), mebibytes(4));
  EXPECT_TRUE(machine.broker.release_import(mate, mapped->imported.id, machine.now));
  EXPECT_TRUE(redeem(mate, named)) << "it is kept further";
}

TEST_F(BrokerRegionHandle, IsRefusedByABrokerThatStops) {
  publish(Sharing::kPublic);
  const HandleBytes once = handle(publisher, 1);
  machine.broker.drain();
  EXPECT_EQ(fails(zoe, once), Code::kUnavailable);
}

TEST_F(BrokerRegionHandle, GoesOnWithTheNextBrokerThatHasTheMemory) {
  publish(Sharing::kPublic);
  const HandleBytes named = handle(publisher, 2), late = handle(publisher, 1);
  const auto mapped = redeem(zoe, named);
  ASSERT_TRUE(mapped);
  machine.collect();
  machine.restart(handle_policy(), {grant});
  ASSERT_TRUE(machine.resume(publisher, {slice}, {grant}));
  ASSERT_TRUE(machine.resume(zoe, {}, {}, {mapped->imported.id}));
  EXPECT_TRUE(redeem(zoe, named)) << "once more";
  EXPECT_EQ(fails(zoe, named), Code::kNotFound);
  machine.restart(handle_policy());
  EXPECT_EQ(fails(zoe, late), Code::kNotFound) << "its region has ended";
}

}  // namespace
}  // namespace gpumem::core
