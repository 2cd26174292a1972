#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// One session of a tenant is to publish a region, the others wait for it.

namespace gpumem::core {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

Policy reserve_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.tenants = {user("ann", 1, {{{}, mebibytes(64)}}), user("bob", 2, {{{}, mebibytes(64)}})};
  return policy;
}

class BrokerRegionReserve : public testing::Test {
 protected:
  BrokerRegionReserve() {
    for (SessionId& one : bob) one = machine.connect(2);
    ann = machine.connect(1);
  }
  RequestId ask(SessionId session, Duration wait = seconds(60), Duration life = minutes(10),
                const std::string& name = "weights") {
    const RequestId id = machine.request_ids.next();
    machine.broker.map_or_wait(id, session, {.owner = {}, .name = name, .wait = wait, .reserve_for = life},
                               machine.now);
    machine.collect();
    return id;
  }
  RegionId publish(SessionId session, const std::string& name = "weights") {
    if (!slices.contains(session)) {
      const SliceId slice = machine.slice(session);
      slices.emplace(session, std::pair(slice, machine.get(session, slice, mebibytes(2))));
    }
    const auto& [slice, grant] = slices.at(session);
    Publish terms;
    terms.name = name;
    const auto version =
        machine.broker.publish(session, of_leases(terms, slice, Machine::leases_of(grant)), machine.now);
    machine.collect();
    EXPECT_TRUE(version);
    return version ? *version : RegionId{};
  }
  Result<void> release(SessionId session, ReservationId id) {
    auto released = machine.broker.release_reservation(session, {id}, machine.now);
    machine.collect();
    return released;
  }
  bool is_first(RequestId id) const { return machine.reserved.contains(id); }
  bool waits(RequestId id) const { return !is_first(id) && !machine.maps.contains(id); }
  bool is_mapped(RequestId id) const { return machine.maps.contains(id) && machine.maps.at(id); }
  Error error(RequestId id) const { return machine.maps.at(id).error(); }

  Machine machine{reserve_policy()};
  std::array<SessionId, 4> bob;
  SessionId ann;
  std::map<SessionId, std::pair<SliceId, Grant>> slices;
};

TEST_F(BrokerRegionReserve, IsFirstOnlyOnce) {
  const RequestId first = ask(bob[0]);
  ASSERT_TRUE(is_first(first));
  EXPECT_EQ(machine.reserved.at(first).expires, machine.now + minutes(10));
  EXPECT_TRUE(waits(ask(bob[1])));
  EXPECT_TRUE(waits(ask(bob[2])));
  EXPECT_TRUE(waits(ask(bob[0]))) << "its other threads wait, too";
}

TEST_F(BrokerRegionReserve, IsForEachNameAndTenant) {
  EXPECT_TRUE(is_first(ask(bob[0])));
  EXPECT_TRUE(is_first(ask(ann)));
  EXPECT_TRUE(is_first(ask(bob[0], seconds(60), minutes(10), "others")));
}

TEST_F(BrokerRegionReserve, IsFulfilledByPublishing) {
  const RequestId first = ask(bob[0]);
  const RequestId second = ask(bob[1]), third = ask(bob[2]);
  const RegionId version = publish(bob[0]);
  ASSERT_TRUE(is_mapped(second));
  ASSERT_TRUE(is_mapped(third));
  EXPECT_EQ(machine.maps.at(second)->version, version);
  EXPECT_EQ(release(bob[0], machine.reserved.at(first).reservation).error().code, Code::kNotFound);
  EXPECT_TRUE(is_mapped(ask(bob[3]))) << "whoever comes later maps it at once";
  ASSERT_TRUE(machine.broker.remove_region(bob[0], {"weights"}, machine.now));
  EXPECT_TRUE(is_first(ask(bob[3])));
}

TEST_F(BrokerRegionReserve, PassesToOneOfThoseWhoWaitWhenItIsReleased) {
  const RequestId first = ask(bob[0]);
  const RequestId second = ask(bob[1]), third = ask(bob[2]);
  ASSERT_TRUE(release(bob[0], machine.reserved.at(first).reservation));
  EXPECT_TRUE(is_first(second)) << "it came first";
  EXPECT_TRUE(waits(third));
  ASSERT_TRUE(release(bob[1], machine.reserved.at(second).reservation));
  EXPECT_TRUE(is_first(third));
  publish(bob[2]);
  EXPECT_EQ(machine.maps.size(), 0U) << "nobody waits any more";
}

TEST_F(BrokerRegionReserve, PassesOnWhenItsSessionEnds) {
  ASSERT_TRUE(is_first(ask(bob[0])));
  const RequestId second = ask(bob[1]), third = ask(bob[2]);
  machine.die(bob[0]);
  EXPECT_TRUE(is_first(second));
  EXPECT_TRUE(waits(third));
  machine.die(bob[1]);
  EXPECT_TRUE(is_first(third));
}

TEST_F(BrokerRegionReserve, OfAWaiterThatEndsPassesToTheNext) {
  ASSERT_TRUE(is_first(ask(bob[0])));
  const RequestId second = ask(bob[1]), third = ask(bob[2]);
  machine.die(bob[1]);
  machine.die(bob[0]);
  EXPECT_FALSE(is_first(second));
  EXPECT_TRUE(is_first(third));
}

TEST_F(BrokerRegionReserve, PassesOnAfterItsTime) {
  const RequestId first = ask(bob[0], seconds(60), seconds(5));
  const RequestId second = ask(bob[1]), third = ask(bob[2]);
  machine.pass_in_steps(seconds(4));
  EXPECT_TRUE(waits(second));
  machine.pass_in_steps(seconds(1));
  EXPECT_TRUE(is_first(second));
  EXPECT_TRUE(waits(third));
  EXPECT_EQ(release(bob[0], machine.reserved.at(first).reservation).error().code, Code::kNotFound);
  EXPECT_TRUE(waits(third)) << "what is another's cannot be released";
  publish(bob[0]);
  EXPECT_TRUE(is_mapped(third)) << "who was too late may publish all the same";
}

TEST_F(BrokerRegionReserve, DoesNotRefuseWhoPublishesWithoutOne) {
  const RequestId first = ask(bob[0]);
  const RequestId second = ask(bob[1]);
  const RegionId version = publish(bob[3]);
  ASSERT_TRUE(is_mapped(second));
  EXPECT_EQ(machine.maps.at(second)->version, version);
  ASSERT_TRUE(machine.broker.remove_region(bob[3], {"weights"}, machine.now));
  EXPECT_TRUE(waits(ask(bob[2]))) << "the holder is still at it";
  EXPECT_TRUE(release(bob[0], machine.reserved.at(first).reservation));
}

TEST_F(BrokerRegionReserve, LeavesOrdinaryWaitsAlone) {
  const RequestId first = ask(bob[0]);
  const RequestId ordinary = machine.request_ids.next();
  machine.broker.map_or_wait(ordinary, bob[1], {.owner = {}, .name = "weights", .wait = seconds(60)},
                             machine.now);
  machine.collect();
  const RequestId last = ask(bob[2]);
  ASSERT_TRUE(release(bob[0], machine.reserved.at(first).reservation));
  EXPECT_TRUE(waits(ordinary)) << "it has not asked to publish";
  EXPECT_TRUE(is_first(last));
  publish(bob[2]);
  EXPECT_TRUE(is_mapped(ordinary));
}

TEST_F(BrokerRegionReserve, WithoutAWaitSaysWhoHasIt) {
  ASSERT_TRUE(is_first(ask(bob[0])));
  const RequestId refused = ask(bob[1], seconds(0));
  ASSERT_FALSE(waits(refused));
  EXPECT_EQ(error(refused).code, Code::kNotFound);
  EXPECT_THAT(error(refused).message, HasSubstr("reserved by session " + std::to_string(bob[0].value)));
}

TEST_F(BrokerRegionReserve, WaitedForInVainSaysWhoHasIt) {
  ASSERT_TRUE(is_first(ask(bob[0])));
  const RequestId second = ask(bob[1], seconds(5));
  machine.pass_in_steps(seconds(5));
  ASSERT_FALSE(waits(second));
  EXPECT_EQ(error(second).code, Code::kDeadlineExceeded);
  EXPECT_THAT(error(second).message, HasSubstr("reserved by session"));
}

TEST_F(BrokerRegionReserve, IsNotForWhoHasWithdrawn) {
  const RequestId first = ask(bob[0]);
  const RequestId second = ask(bob[1]), third = ask(bob[2]);
  machine.cancel(second);
  ASSERT_TRUE(release(bob[0], machine.reserved.at(first).reservation));
  EXPECT_FALSE(is_first(second));
  EXPECT_TRUE(is_first(third));
}

TEST_F(BrokerRegionReserve, IsReleasedByItsHolderAlone) {
  const RequestId first = ask(bob[0]);
  const RequestId second = ask(bob[1]);
  const ReservationId id = machine.reserved.at(first).reservation;
  EXPECT_EQ(release(bob[1], id).error().code, Code::kNotFound);
  EXPECT_EQ(release(ann, id).error().code, Code::kNotFound);
  EXPECT_TRUE(waits(second));
}

TEST_F(BrokerRegionReserve, IsBoundedForEachSession) {
  for (std::size_t i = 0; i < RegionReservations::kMostOfSession; ++i)
    ASSERT_TRUE(is_first(ask(bob[0], seconds(60), minutes(10), std::to_string(i))));
  const RequestId beyond = ask(bob[0]);
  ASSERT_FALSE(waits(beyond));
  EXPECT_EQ(error(beyond).code, Code::kResourceExhausted);
  EXPECT_TRUE(is_first(ask(bob[1]))) << "others have theirs";
}

// Who may have no more does not stand in the way of who waits behind it.
TEST_F(BrokerRegionReserve, PassesByAWaiterThatHasTooMany) {
  const RequestId first = ask(bob[0]);
  const RequestId full = ask(bob[1]), next = ask(bob[2]);
  for (std::size_t i = 0; i < RegionReservations::kMostOfSession; ++i)
    ASSERT_TRUE(is_first(ask(bob[1], seconds(60), minutes(10), std::to_string(i))));
  ASSERT_TRUE(release(bob[0], machine.reserved.at(first).reservation));
  ASSERT_FALSE(is_first(full));
  EXPECT_EQ(error(full).code, Code::kResourceExhausted);
  EXPECT_TRUE(is_first(next));
}

TEST_F(BrokerRegionReserve, HasNumbersThatNoEarlierBrokerHasGivenOut) {
  const RequestId first = ask(bob[0]);
  const ReservationId before = machine.reserved.at(first).reservation;
  RegionReservations next;
  const auto later =
      next.add({{}, bob[0], "bob", "others", machine.now + minutes(1)}, machine.now + seconds(1));
  ASSERT_TRUE(later);
  EXPECT_GT(later->id, before);
}

// A session that comes to another tenant has nothing reserved there; who waits for its old tenant's name is
// next.
TEST_F(BrokerRegionReserve, StaysWithItsTenant) {
  ASSERT_TRUE(is_first(ask(bob[0])));
  const RequestId second = ask(bob[1]);
  Policy other = reserve_policy();
  other.tenants[1].name = "rob";
  ASSERT_TRUE(machine.broker.apply(other, machine.now));
  machine.collect();
  EXPECT_TRUE(is_first(second)) << "of the same name of its tenant of now";
  EXPECT_TRUE(waits(ask(bob[0])));
}

// The client gave up, and does not know of the answer that was on its way.
TEST_F(BrokerRegionReserve, EndsWithARequestThatIsCalledOffTooLate) {
  const auto ask_as = [&](SessionId session, std::uint64_t number) {
    const RequestId id = machine.request_ids.next();
    machine.broker.map_or_wait(
        id, session,
        {.owner = {}, .name = "weights", .wait = seconds(60), .reserve_for = minutes(10), .number = number},
        machine.now);
    machine.collect();
    return id;
  };
  const RequestId first = ask_as(bob[0], 7);
  const RequestId second = ask_as(bob[1], 7);
  ASSERT_TRUE(is_first(first));
  machine.broker.call_off_reservation(bob[0], 6, machine.now);
  machine.broker.call_off_reservation(bob[1], 7, machine.now);
  machine.collect();
  EXPECT_TRUE(waits(second)) << "nothing was reserved by those";
  machine.broker.call_off_reservation(bob[0], 7, machine.now);
  machine.collect();
  EXPECT_TRUE(is_first(second));
}

// Memory that is asked back by force gets no new users until that is over. Who waits goes on waiting.
class PressedRegion : public testing::Test {
 protected:
  PressedRegion() : machine(policy()) {
    ann = machine.connect(1);
    holder = machine.connect(2);
    waiter = machine.connect(2);
    slice = machine.slice(holder);
    grant = machine.get(holder, slice, mebibytes(2));
    rest = machine.get(holder, slice, mebibytes(58));
    machine.grow(ann, machine.slice(ann), mebibytes(16), minutes(1));
    EXPECT_FALSE(machine.asked_of(holder).is_zero());
  }
  static Policy policy() {
    Policy one;
    one.devices = {device("GPU-0", mebibytes(64))};
    one.devices[0].reclaim.lend_guarantees = true;
    one.tenants = {user("ann", 1, {{mebibytes(32), mebibytes(64)}}), user("bob", 2, {{{}, mebibytes(64)}})};
    return one;
  }
  RequestId wait(Duration how_long) {
    const RequestId id = machine.request_ids.next();
    machine.broker.map_or_wait(id, waiter, {.owner = {}, .name = "weights", .wait = how_long}, machine.now);
    machine.collect();
    return id;
  }
  void publish() {
    Publish terms;
    terms.name = "weights";
    ASSERT_TRUE(
        machine.broker.publish(holder, of_leases(terms, slice, Machine::leases_of(grant)), machine.now));
    machine.collect();
  }

  Machine machine;
  SessionId ann, holder, waiter;
  SliceId slice;
  Grant grant, rest;
};

TEST_F(PressedRegion, IsMappedByThoseWhoWaitWhenThatIsOver) {
  const RequestId before = wait(seconds(60));
  publish();
  const RequestId after = wait(seconds(60));
  EXPECT_FALSE(machine.maps.contains(before));
  EXPECT_FALSE(machine.maps.contains(after));
  ASSERT_TRUE(machine.give_back(holder, slice, rest));
  machine.pass(seconds(1));
  ASSERT_TRUE(machine.maps.contains(before) && machine.maps.contains(after));
  EXPECT_TRUE(machine.maps.at(before));
  EXPECT_TRUE(machine.maps.at(after));
}

TEST_F(PressedRegion, IsNotWaitedForBeyondTheWait) {
  publish();
  const RequestId at_once = wait({});
  ASSERT_TRUE(machine.maps.contains(at_once));
  EXPECT_EQ(machine.maps.at(at_once).error().code, Code::kUnavailable);
  const RequestId shortly = wait(std::chrono::milliseconds(300));
  machine.pass_in_steps(seconds(1));
  ASSERT_TRUE(machine.maps.contains(shortly));
  EXPECT_EQ(machine.maps.at(shortly).error().code, Code::kDeadlineExceeded);
  EXPECT_THAT(machine.maps.at(shortly).error().message, HasSubstr("asked back"));
}

TEST_F(PressedRegion, IsMappedByWhoHasItAnyway) {
  publish();
  EXPECT_TRUE(machine.broker.map_region(holder, {.owner = {}, .name = "weights"}, machine.now));
}

}  // namespace
}  // namespace gpumem::core
