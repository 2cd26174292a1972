#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Who waits for a region until it is published.

namespace gpumem::core {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::IsEmpty;

Policy wait_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.tenants = {user("ann", 1, {{{}, mebibytes(64)}}), user("bob", 2, {{{}, mebibytes(64)}})};
  return policy;
}

class BrokerRegionWait : public testing::Test {
 protected:
  BrokerRegionWait() {
    publisher = machine.connect(2);
    mate = machine.connect(2);
    ann = machine.connect(1);
    slice = machine.slice(publisher);
    grant = machine.get(publisher, slice, mebibytes(2));
  }
  Result<RegionId> publish(Sharing sharing = Sharing::kPublic, const std::string& name = "weights") {
    Publish terms;
    terms.name = name;
    terms.sharing = sharing;
    auto version =
        machine.broker.publish(publisher, of_leases(terms, slice, Machine::leases_of(grant)), machine.now);
    machine.collect();
    return version;
  }
  RequestId wait(SessionId session, Duration time, MapRegion terms = {"bob", "weights"}) {
    const RequestId id = machine.request_ids.next();
    terms.wait = time;
    machine.broker.map_or_wait(id, session, terms, machine.now);
    machine.collect();
    return id;
  }
  static MapRegion newer_than(RegionId version, const std::string& owner = "bob") {
    return {.owner = owner, .name = "weights", .newer_than = version.value};
  }
  bool is_answered(RequestId id) const { return machine.maps.contains(id); }
  bool is_mapped(RequestId id) const { return is_answered(id) && machine.maps.at(id).has_value(); }
  Code code(RequestId id) const { return machine.maps.at(id).error().code; }

  Machine machine{wait_policy()};
  SessionId publisher, mate, ann;
  SliceId slice;
  Grant grant;
};

TEST_F(BrokerRegionWait, EndsWhenTheRegionIsPublished) {
  const RequestId own = wait(mate, seconds(10), {"", "weights"});
  const RequestId anns = wait(ann, seconds(10));
  EXPECT_FALSE(is_answered(own));
  EXPECT_EQ(machine.broker.region_due(own), machine.now + seconds(10));
  const auto version = publish();
  ASSERT_TRUE(is_mapped(own));
  ASSERT_TRUE(is_mapped(anns));
  EXPECT_EQ(machine.maps.at(own)->version, *version);
  EXPECT_EQ(machine.maps.at(own)->imported.bytes, mebibytes(2));
  EXPECT_FALSE(machine.broker.region_due(own));
}

TEST_F(BrokerRegionWait, IsNotToTakeOverWhatAnotherTenantMayPublish) {
  const RequestId id = wait(ann, seconds(10), {"bob", "weights", Regions::kNewest, MapAs::kOwner});
  ASSERT_TRUE(is_answered(id));
  EXPECT_EQ(code(id), Code::kPermissionDenied);
}

TEST_F(BrokerRegionWait, IsNotForWhatIsThereAlready) {
  ASSERT_TRUE(publish());
  EXPECT_TRUE(is_mapped(wait(ann, seconds(10))));
}

TEST_F(BrokerRegionWait, OfNoTimeIsAnsweredAtOnce) {
  EXPECT_EQ(code(wait(ann, seconds(0))), Code::kNotFound);
}

TEST_F(BrokerRegionWait, InVainSaysWhatItWaitedFor) {
  const RequestId id = wait(ann, seconds(10));
  machine.pass_in_steps(seconds(9));
  EXPECT_FALSE(is_answered(id));
  machine.pass_in_steps(seconds(1));
  ASSERT_TRUE(is_answered(id));
  EXPECT_EQ(code(id), Code::kDeadlineExceeded);
  EXPECT_THAT(machine.maps.at(id).error().message, testing::HasSubstr("'weights' of tenant 'bob'"));
}

// Nobody learns of others' regions by waiting for them.
TEST_F(BrokerRegionWait, GoesOnOverARegionThatIsNotForTheWaiter) {
  const RequestId id = wait(ann, seconds(10));
  ASSERT_TRUE(publish(Sharing::kPrivate));
  ASSERT_TRUE(publish(Sharing::kPublic, "others"));
  EXPECT_FALSE(is_answered(id));
  ASSERT_TRUE(publish());
  EXPECT_TRUE(is_mapped(id));
}

TEST_F(BrokerRegionWait, EndsWithItsSession) {
  const RequestId id = wait(ann, seconds(10));
  machine.die(ann);
  ASSERT_TRUE(publish());
  machine.pass_in_steps(seconds(20));
  EXPECT_FALSE(is_answered(id));
  EXPECT_EQ(machine.broker.next_deadline(), std::nullopt);
}

TEST_F(BrokerRegionWait, IsWithdrawn) {
  const RequestId id = wait(ann, seconds(10));
  machine.cancel(id);
  ASSERT_TRUE(publish());
  machine.pass_in_steps(seconds(20));
  EXPECT_FALSE(is_answered(id));
}

TEST_F(BrokerRegionWait, EndsWhenTheBrokerStops) {
  const RequestId id = wait(ann, seconds(10));
  machine.broker.drain();
  machine.collect();
  ASSERT_TRUE(is_answered(id));
  EXPECT_EQ(code(id), Code::kUnavailable);
}

TEST_F(BrokerRegionWait, IsBoundedForEachSession) {
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < RegionWaits::kMostOfSession; ++i) ids.push_back(wait(ann, seconds(10)));
  EXPECT_EQ(code(wait(ann, seconds(10))), Code::kResourceExhausted);
  machine.cancel(ids.front());
  EXPECT_FALSE(is_answered(wait(ann, seconds(10))));
  EXPECT_FALSE(is_answered(wait(mate, seconds(10)))) << "others have theirs";
}

// They all may wait for one name, and are looked at in one event.
TEST_F(BrokerRegionWait, IsBoundedForEachTenant) {
  std::vector<SessionId> sessions;
  for (std::size_t left = RegionWaits::kMostOfTenant; left > 0; left -= RegionWaits::kMostOfSession) {
    sessions.push_back(machine.connect(1));
    for (std::size_t i = 0; i < RegionWaits::kMostOfSession; ++i) wait(sessions.back(), seconds(10));
  }
  EXPECT_EQ(code(wait(ann, seconds(10))), Code::kResourceExhausted);
  EXPECT_FALSE(is_answered(wait(mate, seconds(10)))) << "others have theirs";
  machine.die(sessions.front());
  EXPECT_FALSE(is_answered(wait(ann, seconds(10))));
}

TEST_F(BrokerRegionWait, AreAnsweredAFewAtATimeInTheirOrder) {
  std::vector<RequestId> ids;
  for (int i = 0; i < 200; ++i) {
    const SessionId reader = machine.connect(1);
    const SessionId stranger = machine.connect(2);
    ids.push_back(wait(reader, minutes(1)));
    wait(stranger, minutes(1), {"ann", "weights"});
  }
  const auto answered = [&] {
    const auto waits = std::ranges::find_if(ids, [&](RequestId id) { return !is_answered(id); });
    EXPECT_TRUE(std::none_of(waits, ids.end(), [&](RequestId id) { return is_answered(id); })) << "in order";
    return waits - ids.begin();
  };
  ASSERT_TRUE(publish());
  EXPECT_EQ(answered(), 64);
  EXPECT_LE(machine.broker.next_deadline(), machine.now) << "the next are due at once";
  const RequestId withdrawn = ids[70];
  machine.cancel(withdrawn);
  std::erase(ids, withdrawn);
  machine.pass({});
  EXPECT_EQ(answered(), 128);
  machine.pass_in_steps(seconds(1));
  EXPECT_EQ(answered(), 199);
  EXPECT_TRUE(std::ranges::all_of(ids, [&](RequestId id) { return is_mapped(id); }));
}

TEST_F(BrokerRegionWait, WhoIsNotServedYetGoesOnWaitingIfTheRegionEnds) {
  std::vector<RequestId> ids;
  for (int i = 0; i < 65; ++i) ids.push_back(wait(machine.connect(1), minutes(1)));
  ASSERT_TRUE(publish());
  ASSERT_TRUE(machine.broker.remove_region(publisher, {"weights"}, machine.now));
  machine.pass_in_steps(seconds(1));
  EXPECT_FALSE(is_answered(ids.back()));
  ASSERT_TRUE(publish());
  EXPECT_TRUE(is_mapped(ids.back()));
}

TEST_F(BrokerRegionWait, IsForTheNewestAlone) {
  EXPECT_EQ(code(wait(ann, seconds(10), {"bob", "weights", 7})), Code::kInvalidArgument);
}

TEST_F(BrokerRegionWait, ForANewerVersionEndsWhenThatIsPublished) {
  const auto first = publish();
  const RequestId own = wait(mate, seconds(10), newer_than(*first, ""));
  const RequestId anns = wait(ann, seconds(10), newer_than(*first));
  const RequestId twice = wait(ann, minutes(1), newer_than({first->value + 1}));
  EXPECT_FALSE(is_answered(own));
  EXPECT_FALSE(is_answered(anns));
  const auto second = publish();
  ASSERT_TRUE(is_mapped(own));
  ASSERT_TRUE(is_mapped(anns));
  EXPECT_EQ(machine.maps.at(own)->version, *second);
  EXPECT_EQ(machine.maps.at(anns)->version, *second);
  EXPECT_FALSE(is_answered(twice)) << "this one is not newer";
  const auto third = publish();
  ASSERT_TRUE(is_mapped(twice));
  EXPECT_EQ(machine.maps.at(twice)->version, *third);
}

TEST_F(BrokerRegionWait, ForANewerVersionThatIsThereEndsAtOnceWithTheNewest) {
  const auto first = publish();
  ASSERT_TRUE(publish());
  const auto third = publish();
  const RequestId id = wait(ann, seconds(10), newer_than(*first));
  ASSERT_TRUE(is_mapped(id));
  EXPECT_EQ(machine.maps.at(id)->version, *third);
}

TEST_F(BrokerRegionWait, ForANewerVersionOfAnUnknownNameEndsWhenItIsPublished) {
  const RequestId id = wait(ann, seconds(10), newer_than({1}));
  EXPECT_FALSE(is_answered(id));
  ASSERT_TRUE(publish(Sharing::kPublic, "other"));  // version 1
  const auto version = publish();
  ASSERT_TRUE(is_mapped(id));
  EXPECT_EQ(machine.maps.at(id)->version, *version);
}

TEST_F(BrokerRegionWait, ForANewerVersionGoesOnOverOneThatIsNotForTheWaiter) {
  const auto first = publish();
  const RequestId id = wait(ann, seconds(10), newer_than(*first));
  ASSERT_TRUE(publish(Sharing::kPrivate));
  EXPECT_FALSE(is_answered(id));
  machine.pass_in_steps(seconds(10));
  ASSERT_TRUE(is_answered(id));
  EXPECT_THAT(machine.maps.at(id).error().message,
              testing::EndsWith("the newest is version " + std::to_string(first->value)))
      << "the private version stays unknown";
}

TEST_F(BrokerRegionWait, ForANewerVersionGoesOnWhenTheOlderOneIsRemoved) {
  const auto first = publish();
  const RequestId id = wait(ann, seconds(10), newer_than(*first));
  ASSERT_TRUE(machine.broker.remove_region(publisher, {"weights"}, machine.now));
  machine.collect();
  EXPECT_FALSE(is_answered(id));
  ASSERT_TRUE(publish());
  EXPECT_TRUE(is_mapped(id));
}

TEST_F(BrokerRegionWait, ForANewerVersionInVainSaysWhichOneIsThere) {
  const auto first = publish();
  const std::string number = std::to_string(first->value);
  const RequestId none = wait(ann, seconds(0), newer_than(*first));
  EXPECT_EQ(code(none), Code::kNotFound);
  EXPECT_EQ(machine.maps.at(none).error().message,
            "region 'weights' of tenant 'bob' has no version newer than " + number +
                ": the newest is version " + number);
  const RequestId id = wait(ann, seconds(10), newer_than(*first));
  machine.pass_in_steps(seconds(10));
  EXPECT_EQ(code(id), Code::kDeadlineExceeded);
  EXPECT_EQ(machine.maps.at(id).error().message,
            "waited 10000 ms for a version newer than " + number +
                " of region 'weights' of tenant 'bob': the newest is version " + number);
}

TEST_F(BrokerRegionWait, LooksAgainWhenTenantsChange) {
  const RequestId id = wait(ann, seconds(10));
  ASSERT_TRUE(publish(Sharing::kPrivate));
  Policy one = wait_policy();
  one.tenants[1].name = "both";
  one.tenants[1].gid = 102;
  ASSERT_TRUE(machine.broker.apply(one, machine.now));
  machine.collect();
  EXPECT_FALSE(is_answered(id)) << "of another name now";
  machine.pass_in_steps(seconds(10));
  EXPECT_EQ(code(id), Code::kDeadlineExceeded);
}

TEST_F(BrokerRegionWait, ByAnUnknownSessionIsAnsweredAtOnce) {
  EXPECT_EQ(code(wait(SessionId{999}, seconds(10))), Code::kUnauthenticated);
}

// Its memory is asked back, so that it may be mapped again soon.
TEST(BrokerRegionWaitForAVersion, EndsWithTheVersion) {
  Policy policy = small_policy();
  policy.devices[0].reclaim.lend_guarantees = true;
  Machine machine(policy);
  const SessionId bob = machine.connect(2);
  const SliceId bobs = machine.slice(bob);
  const Grant grant = machine.get(bob, bobs, mebibytes(64));
  Publish terms;
  terms.name = "weights";
  const auto version =
      machine.broker.publish(bob, of_leases(terms, bobs, Machine::leases_of(grant)), machine.now);
  ASSERT_TRUE(version);
  const SessionId ann = machine.connect(1);
  machine.grow(ann, machine.slice(ann), mebibytes(8), seconds(600));
  const RequestId id = machine.request_ids.next();
  MapRegion wanted;
  wanted.name = "weights";
  wanted.version = version->value;
  wanted.wait = minutes(600);
  machine.broker.map_or_wait(id, machine.connect(2), wanted, machine.now);
  machine.collect();
  EXPECT_FALSE(machine.maps.contains(id));
  ASSERT_TRUE(machine.give_back(bob, bobs, grant));
  machine.pass_in_steps(minutes(1));
  ASSERT_TRUE(machine.maps.contains(id));
  EXPECT_EQ(machine.maps.at(id).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace gpumem::core
