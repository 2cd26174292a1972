#include <gtest/gtest.h>

#include "tests/unit/core/machine.h"

// Requests that wait keep their places over a restart, in whatever order their clients come back.

namespace gpumem::core {
namespace {

constexpr Bytes kForty = mebibytes(40);
constexpr Duration kMinute = std::chrono::minutes(1);
constexpr Duration kAging = std::chrono::seconds(30);

// 64 MiB that three tenants share alike; a holder of a fourth has all of it.
Policy shared_policy() {
  Policy policy = small_policy();
  policy.aging = kAging;
  policy.tenants.clear();
  for (std::uint32_t uid = 1; uid <= 4; ++uid)
    policy.tenants.push_back(user("user" + std::to_string(uid), uid, {{{}, mebibytes(64)}}));
  return policy;
}

class BrokerRestoreWaiting : public testing::Test {
 protected:
  struct Waiter {
    SessionId session;
    SliceId slice;
    Bytes bytes;
    RequestId request;
  };
  BrokerRestoreWaiting() {
    holder.session = machine.connect(4);
    holder.slice = machine.slice(holder.session);
    grant = machine.get(holder.session, holder.slice, mebibytes(64));
  }
  Waiter wait(std::uint32_t uid, Bytes bytes = kForty) {
    machine.pass(std::chrono::seconds(1));
    Waiter waiter{machine.connect(uid), {}, bytes, {}};
    waiter.slice = machine.slice(waiter.session);
    waiter.request = machine.grow(waiter.session, waiter.slice, bytes, kMinute);
    EXPECT_FALSE(machine.is_answered(waiter.request)) << machine.why(waiter.request);
    return waiter;
  }
  void restart() {
    machine.restart(shared_policy());
    ASSERT_TRUE(machine.resume(holder.session, {holder.slice}, {grant}));
    grant = machine.before(grant);
  }
  void resume(const Waiter& waiter) { ASSERT_TRUE(machine.resume(waiter.session, {waiter.slice}, {})); }
  void repeat(Waiter& waiter) {
    machine.pass(std::chrono::milliseconds(100));
    waiter.request = machine.grow(waiter.session, waiter.slice, waiter.bytes, kMinute);
    ASSERT_FALSE(machine.is_answered(waiter.request)) << machine.why(waiter.request);
  }
  void come_back(Waiter& waiter) {
    resume(waiter);
    repeat(waiter);
  }
  void expect_granted_next(const Waiter& waiter, const std::vector<Waiter>& others) {
    ASSERT_TRUE(machine.is_granted(waiter.request)) << machine.why(waiter.request);
    for (const Waiter& other : others) EXPECT_FALSE(machine.is_answered(other.request));
    machine.say_goodbye(waiter.session);
  }

  // Its place among the grants that there were.
  std::ptrdiff_t granted_at(const Waiter& waiter) const {
    const std::vector<Event> grants = machine.events_of(Event::Kind::kGranted);
    const auto found = std::ranges::find(grants, waiter.request, &Event::request);
    EXPECT_NE(found, grants.end());
    return found - grants.begin();
  }

  Machine machine{shared_policy()};
  Waiter holder;
  Grant grant;
};

TEST_F(BrokerRestoreWaiting, AreGrantedInTheOrderInWhichTheyFirstAsked) {
  Waiter first = wait(1);
  Waiter second = wait(2);
  Waiter third = wait(3);
  restart();
  for (Waiter* one : {&third, &second, &first}) come_back(*one);
  Waiter fresh = wait(4);
  machine.say_goodbye(holder.session);
  expect_granted_next(first, {second, third, fresh});
  expect_granted_next(second, {third, fresh});
  expect_granted_next(third, {fresh});
  expect_granted_next(fresh, {});
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerRestoreWaiting, KeepTheirPlacesOverASecondRestartAlsoIfTheyHaveNotComeBackInBetween) {
  Waiter first = wait(1);
  Waiter second = wait(2);
  Waiter third = wait(3);
  restart();
  come_back(third);
  come_back(second);
  restart();
  for (Waiter* one : {&second, &third, &first}) come_back(*one);
  machine.say_goodbye(holder.session);
  expect_granted_next(first, {second, third});
  expect_granted_next(second, {third});
  expect_granted_next(third, {});
}

TEST_F(BrokerRestoreWaiting, RequestsOfOneSessionKeepTheirOrderAmongThemselves) {
  Waiter one = wait(1, mebibytes(40));
  Waiter other = one;
  other.bytes = mebibytes(20);
  repeat(other);
  restart();
  resume(one);
  repeat(other);
  repeat(one);
  ASSERT_LT(one.request, other.request);
  ASSERT_TRUE(machine.give_back(holder.session, holder.slice, grant));
  EXPECT_LT(granted_at(one), granted_at(other));
}

TEST_F(BrokerRestoreWaiting, AnotherRequestThanBeforeIsPlacedBehind) {
  Waiter liar = wait(1, mebibytes(20));
  Waiter honest = wait(2);
  restart();
  resume(liar);
  come_back(honest);
  liar.bytes = kForty;
  repeat(liar);
  machine.say_goodbye(holder.session);
  expect_granted_next(honest, {liar});
}

TEST_F(BrokerRestoreWaiting, PlaceIsTakenOnce) {
  Waiter first = wait(1, mebibytes(20));
  Waiter second = wait(2);
  restart();
  come_back(second);
  come_back(first);
  Waiter twice = first;
  repeat(twice);
  EXPECT_LT(first.request, second.request);
  EXPECT_LT(second.request, twice.request);
}

TEST_F(BrokerRestoreWaiting, PlaceOfWhatWasWithdrawnBeforeIsNotKept) {
  Waiter first = wait(1);
  Waiter second = wait(2);
  machine.cancel(first.request);
  restart();
  come_back(second);
  come_back(first);
  machine.say_goodbye(holder.session);
  expect_granted_next(second, {first});
}

TEST_F(BrokerRestoreWaiting, PlaceLapsesWhenTheRequestWouldHaveExpired) {
  Waiter first = wait(1);
  restart();
  resume(first);
  machine.pass(kMinute);
  Waiter second = wait(2);
  repeat(first);
  EXPECT_LT(second.request, first.request);
}

TEST_F(BrokerRestoreWaiting, PlaceIsNotForWhatIsAskedLongAfterItsClientIsBack) {
  Waiter first = wait(1);
  Waiter second = wait(2);
  restart();
  resume(first);
  machine.pass(std::chrono::seconds(2));
  come_back(second);
  repeat(first);
  machine.say_goodbye(holder.session);
  expect_granted_next(second, {first});
}

TEST_F(BrokerRestoreWaiting, PlaceGoesWithItsSession) {
  const Waiter gone = wait(1);
  restart();
  machine.die(gone.session);
  EXPECT_TRUE(machine.written.waiting.empty());
}

TEST_F(BrokerRestoreWaiting, HaveWaitedSinceTheyFirstAsked) {
  Waiter waiter = wait(1);
  machine.pass(std::chrono::seconds(20));
  restart();
  come_back(waiter);
  machine.pass(kMinute);
  ASSERT_TRUE(machine.is_answered(waiter.request));
  const Denial& denial = machine.denial(waiter.request);
  EXPECT_GE(denial.waited, kMinute + std::chrono::seconds(20));
  EXPECT_GE(denial.wait_limit, denial.waited) << "of what it has waited in all";
}

TEST_F(BrokerRestoreWaiting, WhatHasWaitedLongIsNotOvertakenAfterwardsEither) {
  Waiter large = wait(1, mebibytes(60));
  machine.pass(kAging - std::chrono::seconds(1));
  restart();
  Waiter small = wait(2, mebibytes(10));
  resume(large);
  repeat(large);
  ASSERT_TRUE(machine.give_back(holder.session, holder.slice, grant));
  EXPECT_TRUE(machine.is_granted(large.request)) << machine.why(large.request);
  EXPECT_FALSE(machine.is_answered(small.request));
}

}  // namespace
}  // namespace gpumem::core
