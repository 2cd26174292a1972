#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Regions: who may map them, which version, and who is charged for what becomes of their publisher.

namespace gpumem::core {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// The tenants lab, with ann and bob, and zoe, who belongs to nobody.
Policy lab_policy(Escalation escalation = Escalation::kWait) {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.devices[0].reclaim.lend_guarantees = true;
  policy.devices[0].reclaim.escalation = escalation;
  policy.tenants = {parent("lab", {{mebibytes(16), mebibytes(64)}}),
                    user("ann", 1, {{mebibytes(16), mebibytes(64)}}, "lab"),
                    user("bob", 2, {{{}, mebibytes(64)}}, "lab"),
                    user("zoe", 3, {{mebibytes(16), mebibytes(64)}})};
  return policy;
}

class BrokerRegion : public testing::Test {
 protected:
  explicit BrokerRegion(Policy policy = lab_policy()) : machine(std::move(policy)) {
    publisher = machine.connect(2);
    mate = machine.connect(2);
    ann = machine.connect(1);
    zoe = machine.connect(3);
    slice = machine.slice(publisher);
    grant = machine.get(publisher, slice, mebibytes(8));
  }
  Publish terms(Sharing sharing = Sharing::kPrivate) const {
    Publish terms;
    terms.name = "weights";
    terms.sharing = sharing;
    if (sharing == Sharing::kNamed) terms.readers = {"zoe"};
    return terms;
  }
  Result<RegionId> publish(const Publish& terms) { return publish(terms, grant); }
  Result<RegionId> publish(const Publish& terms, const Grant& of) {
    return machine.broker.publish(publisher, of_leases(terms, slice, Machine::leases_of(of)), machine.now);
  }
  Result<MappedRegion> map(SessionId session, std::uint64_t version = Regions::kNewest) {
    return machine.broker.map_region(session, {.owner = "bob", .name = "weights", .version = version},
                                     machine.now);
  }
  /// Calls `end_some`, as the host does, until it says that it has ended all. Returns how many regions each
  /// call has ended.
  template <class EndSome>
  std::vector<std::size_t> in_pieces(EndSome end_some) {
    std::vector<std::size_t> pieces;
    const auto ended = [&] {
      return machine.events_of(Event::Kind::kRegionLost).size() +
             machine.events_of(Event::Kind::kExpired).size();
    };
    for (bool is_more = true; is_more;) {
      const std::size_t before = ended();
      is_more = end_some();
      machine.collect();
      pieces.push_back(ended() - before);
    }
    return pieces;
  }
  /// The publisher ends, as the host has it end.
  std::vector<std::size_t> end_in_pieces() {
    auto pieces = in_pieces([&] { return machine.broker.end_some_regions(publisher, machine.now); });
    machine.die(publisher);
    return pieces;
  }
  /// Publishes the same memory under kMany names.
  void publish_many(Publish one) {
    for (std::size_t i = 0; i < kMany; ++i) {
      one.name = "weights" + std::to_string(i);
      ASSERT_TRUE(publish(one));
    }
  }
  void expect_all_in_small(const std::vector<std::size_t>& pieces) {
    std::size_t sum = 0;
    for (const std::size_t piece : pieces) {
      EXPECT_LE(piece, 64u);
      sum += piece;
    }
    EXPECT_EQ(sum, kMany);
  }
  static constexpr std::size_t kMany = 200;
  /// The process maps it.
  ImportId use(SessionId session) {
    auto mapped = map(session);
    EXPECT_TRUE(mapped) << mapped.error().message;
    if (!mapped) return {};
    for (const auto& [lease, extent] : mapped->imported.leases) {
      machine.driver.hold(extent.id);
      machine.held[session].push_back(extent.id);
    }
    return mapped->imported.id;
  }
  Code map_fails(SessionId session, std::uint64_t version = Regions::kNewest) {
    auto mapped = map(session, version);
    EXPECT_FALSE(mapped);
    return mapped ? Code::kInternal : mapped.error().code;
  }
  Code publish_fails(const Publish& terms) {
    auto published = publish(terms);
    EXPECT_FALSE(published);
    return published ? Code::kInternal : published.error().code;
  }

  Machine machine;
  SessionId publisher, mate, ann, zoe;
  SliceId slice;
  Grant grant;
};

TEST_F(BrokerRegion, VeryManyOfOneProcessEndInPieces) {
  publish_many(terms());
  expect_all_in_small(end_in_pieces());
}

TEST_F(BrokerRegion, VeryManyOfOneProcessEndInPiecesThoughAReaderOfAnotherTenantKeepsThem) {
  ASSERT_TRUE(publish(terms(Sharing::kPublic)));
  use(zoe);
  publish_many(terms());
  expect_all_in_small([&] {
    auto pieces = end_in_pieces();
    --pieces.front();  // the one that zoe has mapped
    return pieces;
  }());
  EXPECT_EQ(machine.charged("zoe"), mebibytes(8));
}

TEST_F(BrokerRegion, VeryManyOfAnExtentThatIsReturnedEndInPieces) {
  publish_many(terms());
  const Return wrong{SliceId{99}, Machine::leases_of(grant)};
  EXPECT_FALSE(machine.broker.end_some_regions(publisher, wrong, machine.now)) << "it is refused";
  const Return request{slice, Machine::leases_of(grant)};
  expect_all_in_small(
      in_pieces([&] { return machine.broker.end_some_regions(publisher, request, machine.now); }));
  ASSERT_TRUE(machine.give_back(publisher, slice, grant));
  EXPECT_EQ(machine.charged("bob"), Bytes{});
}

TEST_F(BrokerRegion, ThatItsPublisherHasMappedOutlivesTheReturnOfItsSlice) {
  ASSERT_TRUE(publish(terms()));
  use(publisher);
  const Return request{slice, Machine::leases_of(grant)};
  EXPECT_FALSE(machine.broker.end_some_regions(publisher, request, machine.now));
  ASSERT_TRUE(machine.give_back(publisher, slice, grant));
  EXPECT_TRUE(map(mate)) << "a publisher that maps it is a reader like others";
}

TEST_F(BrokerRegion, VeryManyOfInheritedMemoryThatIsReleasedEndInPieces) {
  ASSERT_TRUE(publish(terms()));
  const ImportId import = use(mate);
  publish_many(terms());
  ASSERT_TRUE(machine.give_back(publisher, slice, grant));
  EXPECT_TRUE(machine.events_of(Event::Kind::kRegionLost).empty()) << "they are the mate's now";
  const ReleaseImport request{import};
  auto pieces = in_pieces([&] { return machine.broker.end_some_regions(mate, request, machine.now); });
  --pieces.front();
  expect_all_in_small(pieces);
  machine.stop_using(mate, grant);
  EXPECT_TRUE(machine.broker.release_import(mate, request, machine.now));
  machine.collect();
  EXPECT_EQ(machine.charged("bob"), Bytes{});
}

TEST_F(BrokerRegion, VeryManyWhoseTimeIsOverEndInPieces) {
  Publish one = terms();
  one.life = seconds(5);
  publish_many(one);
  machine.now += seconds(5);
  expect_all_in_small(in_pieces([&] {
    machine.pass({});
    const auto next = machine.broker.next_deadline();
    return next && *next <= machine.now;
  }));
}

TEST_F(BrokerRegion, WhoseTimeIsOverIsNotMappedThoughOthersEndFirst) {
  ASSERT_TRUE(publish(terms()));
  Publish one = terms();
  one.life = seconds(5);
  publish_many(one);
  ASSERT_TRUE(publish(one));
  machine.now += seconds(5);
  const auto mapped = map(mate);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->version, RegionId{1}) << "an older version has no end";
}

TEST_F(BrokerRegion, ThatAMateUsesOutlivesThePiecesOfItsPublishersEnd) {
  ASSERT_TRUE(publish(terms()));
  use(mate);
  EXPECT_EQ(end_in_pieces(), std::vector<std::size_t>{0});
  EXPECT_TRUE(map(mate)) << "it stays with its tenant";
}

TEST_F(BrokerRegion, IsMappedByItsNameAndChargedOnce) {
  Publish part = terms();
  part.offset = mebibytes(1);
  part.bytes = mebibytes(4);
  part.layout = Bytes{100};
  part.digest.fill('d');
  const auto version = publish(part);
  ASSERT_TRUE(version);
  const auto mapped = machine.broker.map_region(mate, {.owner = {}, .name = "weights"}, machine.now);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->version, *version);
  EXPECT_EQ(mapped->layout, Bytes{100});
  EXPECT_EQ(mapped->digest, part.digest);
  EXPECT_EQ(mapped->imported.offset, mebibytes(1));
  EXPECT_EQ(mapped->imported.bytes, mebibytes(4));
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
}

TEST_F(BrokerRegion, IsAsIfItWereNotThereForWhomItIsNotSharedWith) {
  const std::string unknown = map(zoe).error().message;
  ASSERT_TRUE(publish(terms(Sharing::kPrivate)));
  EXPECT_EQ(map_fails(zoe), Code::kNotFound);
  EXPECT_EQ(map_fails(ann), Code::kNotFound);
  EXPECT_EQ(map(zoe).error().message, unknown);
  EXPECT_TRUE(map(mate));
}

TEST_F(BrokerRegion, ThatIsNotSharedHidesNoOlderOneThatIs) {
  const auto older = publish(terms(Sharing::kNamed));
  const auto newer = publish(terms(Sharing::kPrivate));
  ASSERT_TRUE(older && newer);
  const auto mapped = map(zoe);
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_EQ(mapped->version, *older);
  EXPECT_EQ(map_fails(zoe, newer->value), Code::kNotFound);
  EXPECT_EQ(map(mate)->version, *newer);
  ASSERT_TRUE(machine.broker.remove_region(publisher, {"weights", older->value}, machine.now));
  EXPECT_EQ(map_fails(zoe), Code::kNotFound);
}

TEST_F(BrokerRegion, OfAGroupIsForThoseWhoBelongToIt) {
  ASSERT_TRUE(publish(terms(Sharing::kGroup)));
  EXPECT_TRUE(map(ann));
  EXPECT_EQ(map_fails(zoe), Code::kNotFound);
}

TEST_F(BrokerRegion, OfATenantWithoutAGroupIsForNobodyElse) {
  const SliceId hers = machine.slice(zoe);
  const Grant zoes = machine.get(zoe, hers, mebibytes(2));
  ASSERT_TRUE(machine.broker.publish(zoe, of_leases(terms(Sharing::kGroup), hers, Machine::leases_of(zoes)),
                                     machine.now));
  EXPECT_FALSE(machine.broker.map_region(ann, {.owner = "zoe", .name = "weights"}, machine.now));
}

TEST_F(BrokerRegion, IsForTenantsThatAreNamedOrForAll) {
  ASSERT_TRUE(publish(terms(Sharing::kNamed)));
  EXPECT_TRUE(map(zoe));
  EXPECT_EQ(map_fails(ann), Code::kNotFound);
  ASSERT_TRUE(publish(terms(Sharing::kPublic)));
  EXPECT_TRUE(map(ann));
}

TEST_F(BrokerRegion, NamedForAGroupIsForItsMembers) {
  Publish lab = terms(Sharing::kNamed);
  lab.readers = {"nobody", "lab"};
  ASSERT_TRUE(publish(lab));
  EXPECT_TRUE(map(ann));
  EXPECT_EQ(map_fails(zoe), Code::kNotFound);
}

TEST_F(BrokerRegion, ComesInVersionsOfWhichTheNewestIsMeant) {
  const Grant more = machine.get(publisher, slice, mebibytes(2));
  const auto first = publish(terms());
  const auto second = publish(terms(), more);
  ASSERT_TRUE(first && second);
  EXPECT_GT(*second, *first);
  EXPECT_EQ(map(mate)->version, *second);
  EXPECT_EQ(map(mate, first->value)->imported.bytes, mebibytes(8));
  ASSERT_TRUE(machine.broker.remove_region(mate, {"weights"}, machine.now));
  EXPECT_EQ(map(mate)->version, *first);
  EXPECT_EQ(map_fails(mate, second->value), Code::kNotFound);
}

TEST_F(BrokerRegion, IsRemovedByItsTenantAlone) {
  ASSERT_TRUE(publish(terms(Sharing::kPublic)));
  EXPECT_EQ(machine.broker.remove_region(ann, {"weights"}, machine.now).error().code, Code::kNotFound);
  use(ann);
  ASSERT_TRUE(machine.broker.remove_region(mate, {"weights"}, machine.now));
  EXPECT_EQ(map_fails(zoe), Code::kNotFound);
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
}

TEST_F(BrokerRegion, EndsWithItsTime) {
  Publish brief = terms();
  brief.life = seconds(5);
  ASSERT_TRUE(publish(brief));
  machine.pass(seconds(5));
  EXPECT_EQ(map_fails(mate), Code::kNotFound);
}

TEST_F(BrokerRegion, EndsWithAnyOfItsMemory) {
  ASSERT_TRUE(publish(terms()));
  ASSERT_TRUE(machine.give_back(publisher, slice, grant));
  EXPECT_EQ(map_fails(mate), Code::kNotFound);
  EXPECT_EQ(machine.charged("bob"), Bytes{});
}

TEST_F(BrokerRegion, GoesOnWithAReaderOfItsTenantWhenItsPublisherDies) {
  ASSERT_TRUE(publish(terms(Sharing::kPublic)));
  use(ann);
  use(mate);
  machine.die(publisher);
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  EXPECT_EQ(machine.charged("ann"), Bytes{});
  EXPECT_TRUE(map(zoe));
  machine.die(mate);
  EXPECT_EQ(map_fails(mate), Code::kUnauthenticated);
  EXPECT_EQ(map_fails(zoe), Code::kNotFound) << "its tenant has it no more";
}

TEST_F(BrokerRegion, IsChargedToAReaderWhenNobodyOfItsTenantHasIt) {
  ASSERT_TRUE(publish(terms(Sharing::kPublic)));
  const ImportId import = use(ann);
  machine.die(publisher);
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  EXPECT_EQ(machine.charged("ann"), mebibytes(8));
  EXPECT_EQ(map_fails(zoe), Code::kNotFound);
  machine.stop_using(ann, grant);
  ASSERT_TRUE(machine.broker.release_import(ann, {import}, machine.now));
  machine.collect();
  EXPECT_EQ(machine.charged("ann"), Bytes{});
  EXPECT_EQ(machine.free(), mebibytes(64));
}

TEST_F(BrokerRegion, KeepsItsMemoryFromNobodyWhenItIsGivenBackUnderItsReaders) {
  ASSERT_TRUE(publish(terms(Sharing::kPublic)));
  use(zoe);
  ASSERT_TRUE(machine.give_back(publisher, slice, grant));
  EXPECT_EQ(machine.charged("zoe"), mebibytes(8));
  machine.die(zoe);
  EXPECT_EQ(machine.free(), mebibytes(64));
}

TEST_F(BrokerRegion, CannotBeWhatMakesNoSense) {
  Publish wrong = terms();
  wrong.layout = mebibytes(9);
  EXPECT_EQ(publish_fails(wrong), Code::kInvalidArgument);
  wrong = terms();
  wrong.offset = mebibytes(8);
  EXPECT_EQ(publish_fails(wrong), Code::kInvalidArgument);
  wrong = terms();
  wrong.readers = {"ann"};
  EXPECT_EQ(publish_fails(wrong), Code::kInvalidArgument) << "a private one names nobody";
  wrong = terms(Sharing::kNamed);
  wrong.readers.clear();
  EXPECT_EQ(publish_fails(wrong), Code::kInvalidArgument);
  wrong.readers.assign(Regions::kMostReaders + 1, "ann");
  EXPECT_EQ(publish_fails(wrong), Code::kInvalidArgument);
  wrong = terms();
  wrong.life = seconds(-1);
  EXPECT_EQ(publish_fails(wrong), Code::kInvalidArgument);
  EXPECT_EQ(machine.broker.publish(mate, of_leases(terms(), slice, Machine::leases_of(grant)), machine.now)
                .error()
                .code,
            Code::kNotFound)
      << "another's slice";
}

TEST_F(BrokerRegion, ThereAreNoMoreOfATenantThanTheBound) {
  Publish one = terms();
  for (std::size_t i = 0; i < Regions::kMostOfTenant; ++i) ASSERT_TRUE(publish(one));
  EXPECT_EQ(publish_fails(one), Code::kResourceExhausted);
  ASSERT_TRUE(machine.broker.remove_region(mate, {"weights"}, machine.now));
  one.life = seconds(1);
  EXPECT_TRUE(publish(one));
  EXPECT_EQ(publish_fails(one), Code::kResourceExhausted);
  machine.pass(seconds(1));
  EXPECT_TRUE(publish(terms())) << "what has expired makes room";
}

TEST_F(BrokerRegion, OfMuchMemoryCountsForMore) {
  std::vector<LeaseId> leases;
  for (int i = 0; i < 8; ++i)
    for (const LeaseId lease : Machine::leases_of(machine.get(publisher, slice, mebibytes(2))))
      leases.push_back(lease);
  const auto publish_all = [&] {
    return machine.broker.publish(publisher, of_leases(terms(), slice, leases), machine.now);
  };
  for (std::size_t i = 0; i < Regions::kMostParts / leases.size(); ++i) ASSERT_TRUE(publish_all());
  EXPECT_EQ(publish_all().error().code, Code::kResourceExhausted);
  ASSERT_TRUE(machine.broker.remove_region(publisher, {"weights"}, machine.now));
  EXPECT_TRUE(publish_all());
}

TEST_F(BrokerRegion, IsThereAfterARestartIfItsDescriptorsAre) {
  ASSERT_TRUE(publish(terms(Sharing::kPublic)));
  const auto version = map(ann)->version;
  machine.restart(lab_policy(), {grant});
  ASSERT_TRUE(machine.resume(publisher, {slice}, {grant}));
  const SessionId reader = machine.connect(3);
  const auto mapped = map(reader);
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_EQ(mapped->version, version);
  machine.events.clear();
  machine.restart(lab_policy());
  EXPECT_EQ(map_fails(machine.connect(3)), Code::kNotFound) << "nobody can be sent its descriptors";
  machine.collect();
  const auto lost = machine.events_of(Event::Kind::kRegionLost);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].tenant, "bob");
  EXPECT_NE(lost[0].words.find("'weights', version 1, since the broker"), std::string::npos) << lost[0].words;
}

TEST_F(BrokerRegion, WhoeverIsChargedForItNowIsTold) {
  ASSERT_TRUE(publish(terms()));
  use(mate);
  machine.events.clear();
  machine.die(publisher);
  const auto told = machine.events_of(Event::Kind::kInherited);
  ASSERT_EQ(told.size(), 1u) << "for all of its extents";
  EXPECT_EQ(told[0].session, mate);
  EXPECT_EQ(told[0].bytes, mebibytes(8));
}

TEST_F(BrokerRegion, NeverHasAVersionTwice) {
  const auto version = publish(terms());
  ASSERT_TRUE(version);
  ASSERT_TRUE(machine.broker.remove_region(mate, {"weights"}, machine.now));
  machine.restart(lab_policy(), {grant});
  ASSERT_TRUE(machine.resume(publisher, {slice}, {grant}));
  EXPECT_GT(publish(terms(), machine.before(grant)).value(), *version);
}

TEST_F(BrokerRegion, FollowsItsPublisherToAnotherTenant) {
  ASSERT_TRUE(publish(terms()));
  Policy other = lab_policy();
  other.tenants[2].name = "rob";
  ASSERT_TRUE(machine.broker.apply(other, machine.now));
  machine.collect();
  EXPECT_EQ(map_fails(mate), Code::kNotFound) << "bob is nobody";
  EXPECT_TRUE(machine.broker.map_region(mate, {.owner = "rob", .name = "weights"}, machine.now));
}

// Its publisher has given a part back, which a mate has now, who becomes somebody else's.
TEST_F(BrokerRegion, EndsWhenItsMemoryIsPartedBetweenTenants) {
  Peer other = peer_of(2);
  other.gids = {99};
  const SessionId leaver = machine.broker.open_session(other, "test", machine.now).value();
  const Grant more = machine.get(publisher, slice, mebibytes(2));
  std::vector<LeaseId> leases = Machine::leases_of(grant);
  const std::vector<LeaseId> last = Machine::leases_of(more);
  leases.insert(leases.end(), last.begin(), last.end());
  ASSERT_TRUE(machine.broker.publish(publisher, of_leases(terms(), slice, leases), machine.now));
  use(leaver);
  ASSERT_TRUE(machine.give_back(publisher, slice, more));
  ASSERT_TRUE(map(mate));
  Policy parted = lab_policy();
  parted.tenants[2].uid.reset();
  parted.tenants[2].gid = 102;
  TenantRule eve = parted.tenants[2];
  eve.name = "eve";
  eve.gid = 99;
  parted.tenants.push_back(eve);
  ASSERT_TRUE(machine.broker.apply(parted, machine.now));
  machine.collect();
  EXPECT_EQ(map_fails(mate), Code::kNotFound);
  EXPECT_EQ(machine.broker.map_region(leaver, {.owner = "eve", .name = "weights"}, machine.now).error().code,
            Code::kNotFound);
}

class BrokerRegionUnderPressure : public BrokerRegion {
 protected:
  BrokerRegionUnderPressure() : BrokerRegion(lab_policy(Escalation::kEndSession)) {
    EXPECT_TRUE(publish(terms(Sharing::kPublic)));
  }
  // Bob has 48 MiB, zoe the rest, and ann claims what she is guaranteed.
  void press() {
    machine.get(publisher, slice, mebibytes(40));
    machine.get(zoe, machine.slice(zoe), mebibytes(16));
    machine.grow(ann, machine.slice(ann), mebibytes(16), seconds(60));
  }
};

// Its publisher is ended; the reader is charged for the bytes then, and nobody needs them.
TEST_F(BrokerRegionUnderPressure, AReaderIsNotEndedForWhatItsPublisherOwes) {
  use(zoe);
  press();
  machine.pass_in_steps(seconds(2));
  EXPECT_THAT(machine.signals, ElementsAre(Pair(publisher, Signal::kTerminate)));
  machine.die(publisher);
  EXPECT_EQ(machine.charged("ann"), mebibytes(16));
  EXPECT_EQ(machine.charged("zoe"), mebibytes(24));
  machine.pass_in_steps(seconds(60));
  EXPECT_EQ(machine.signals.size(), 1u);
}

// The bytes that a reader of another tenant keeps come back with it, so nobody else is asked for them.
TEST_F(BrokerRegionUnderPressure, AReaderThatIsEndedWithItsPublisherKeepsNothing) {
  use(zoe);
  machine.get(publisher, slice, mebibytes(12));
  std::vector<SessionId> others;
  for (const auto& [uid, bytes] :
       {std::pair(2, mebibytes(14)), std::pair(2, mebibytes(14)), std::pair(3, mebibytes(16))}) {
    others.push_back(machine.connect(uid));
    machine.get(others.back(), machine.slice(others.back()), bytes);
  }
  machine.grow(ann, machine.slice(ann), mebibytes(16), seconds(60));
  machine.pass_in_steps(seconds(2));
  EXPECT_THAT(machine.signals,
              ElementsAre(Pair(publisher, Signal::kTerminate), Pair(zoe, Signal::kTerminate)));
  for (const SessionId other : others) EXPECT_EQ(machine.asked_of(other), Bytes{});
}

// The publisher says that it has given the memory back, and keeps it.
TEST_F(BrokerRegionUnderPressure, AReaderThatHasLetGoIsNotEndedWithItsPublisher) {
  const ImportId import = use(zoe);
  machine.get(publisher, slice, mebibytes(6));
  for (const auto& [uid, bytes] : {std::pair(2, mebibytes(12)), std::pair(2, mebibytes(12)),
                                   std::pair(2, mebibytes(10)), std::pair(3, mebibytes(16))}) {
    const SessionId other = machine.connect(uid);
    machine.get(other, machine.slice(other), bytes);
  }
  machine.stop_using(zoe, grant);
  ASSERT_TRUE(machine.broker.release_import(zoe, {import}, machine.now));
  ASSERT_TRUE(machine.keep_but_give_back(publisher, slice, grant));
  machine.grow(ann, machine.slice(ann), mebibytes(16), seconds(60));
  EXPECT_EQ(machine.asked_of(zoe), mebibytes(8)) << "it may be the one that keeps it";
  machine.pass_in_steps(seconds(2));
  EXPECT_THAT(machine.signals, testing::Contains(Pair(publisher, Signal::kTerminate)));
  EXPECT_THAT(machine.signals, testing::Not(testing::Contains(Pair(zoe, testing::_))));
}

// The publisher says that it has nothing. Its reader keeps the memory from coming back all the same.
TEST_F(BrokerRegionUnderPressure, AReaderIsAskedOnThoughItsPublisherSaysThatItHasNothing) {
  use(mate);
  machine.get(publisher, slice, mebibytes(40));
  machine.get(zoe, machine.slice(zoe), mebibytes(16));
  const RequestId id = machine.grow(ann, machine.slice(ann), mebibytes(16), seconds(60));
  machine.pass_in_steps(seconds(1));
  machine.say_spent(publisher);
  EXPECT_EQ(machine.asked_of(mate), mebibytes(8));
  machine.pass_in_steps(seconds(1));
  EXPECT_THAT(machine.signals,
              ElementsAre(Pair(publisher, Signal::kTerminate), Pair(mate, Signal::kTerminate)));
  machine.die(publisher);
  machine.die(mate);
  EXPECT_TRUE(machine.is_granted(id));
}

// The publisher says that it has nothing. For a moment `other` seems to give back what is needed: then the
// reader is asked anew, with a new deadline.
TEST_F(BrokerRegionUnderPressure, AReaderIsNotEndedWithItsPublisherBeforeItsOwnDeadline) {
  use(mate);
  machine.get(publisher, slice, mebibytes(10));
  const SessionId other = machine.connect(2);
  const SliceId others = machine.slice(other);
  machine.get(other, others, mebibytes(8));
  const Grant returned = machine.get(other, others, mebibytes(8));
  machine.get(mate, machine.slice(mate), mebibytes(14));
  machine.get(zoe, machine.slice(zoe), mebibytes(16));
  machine.grow(ann, machine.slice(ann), mebibytes(8), seconds(60));
  machine.pass_in_steps(seconds(1));
  machine.say_spent(publisher);
  machine.pass_in_steps(std::chrono::milliseconds(500));
  ASSERT_TRUE(machine.keep_but_give_back(other, others, returned));
  EXPECT_EQ(machine.asked_of(mate), mebibytes(8));
  machine.pass_in_steps(std::chrono::milliseconds(500));
  EXPECT_THAT(machine.signals, ElementsAre(Pair(publisher, Signal::kTerminate)));
}

TEST_F(BrokerRegionUnderPressure, IsMappedByNobodyWhileItIsAskedBack) {
  press();
  EXPECT_EQ(map_fails(zoe), Code::kUnavailable);
}

}  // namespace
}  // namespace gpumem::core
