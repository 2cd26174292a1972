#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

using testing::HasSubstr;

class BrokerGrow : public testing::Test {
 protected:
  Bytes granted(RequestId id) {
    Bytes sum;
    for (const OfferedLease& one : machine.answers.at(id)->leases) sum += one.extent.size;
    return sum;
  }
  Machine machine;
  SessionId ann = machine.connect(1);
  SliceId slice = machine.slice(ann);
};

TEST_F(BrokerGrow, GrantsWholePieces) {
  EXPECT_EQ(granted(machine.grow(ann, slice, {1})), kPiece);
  EXPECT_EQ(granted(machine.grow(ann, slice, mebibytes(2))), kPiece);
  EXPECT_EQ(granted(machine.grow(ann, slice, Bytes{kPiece.count + 1})), mebibytes(4));
  EXPECT_EQ(machine.charged("ann"), mebibytes(8));
}

TEST_F(BrokerGrow, RefusesAtOnceWhatTheSliceMayNotHold) {
  const SliceId small = machine.slice(ann, mebibytes(8));
  machine.get(ann, small, mebibytes(6));
  const RequestId id = machine.grow(ann, small, mebibytes(4), std::chrono::seconds(9));
  ASSERT_TRUE(machine.is_answered(id));
  EXPECT_EQ(machine.denial(id).reason, Denial::Reason::kSliceLimit);
  EXPECT_EQ(machine.code(id), Code::kResourceExhausted);
}

TEST_F(BrokerGrow, HasWaitedSinceItCouldHaveBeenRead) {
  machine.now += std::chrono::minutes(1);
  const auto unread = std::chrono::seconds(4);
  const RequestId granted = machine.grow(ann, Grow{.parts = {{slice, kPiece}}, .unread = unread});
  EXPECT_TRUE(machine.is_granted(granted));
  const RequestId denied =
      machine.grow(ann, Grow{.parts = {{slice, mebibytes(64)}}, .wait = unread, .unread = unread});
  EXPECT_EQ(machine.denial(denied).waited, unread);
  EXPECT_EQ(machine.code(denied), Code::kResourceExhausted) << "it was refused at once";
  for (const Event::Kind kind : {Event::Kind::kGranted, Event::Kind::kDenied}) {
    ASSERT_EQ(machine.events_of(kind).size(), 1u);
    EXPECT_EQ(machine.events_of(kind)[0].waited, unread);
  }
}

TEST_F(BrokerGrow, CountsWhatTheSliceWaitsForAgainstItsLimit) {
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(48));
  const SliceId small = machine.slice(ann, mebibytes(30));
  const RequestId first = machine.grow(ann, small, mebibytes(20), std::chrono::seconds(9));
  const RequestId second = machine.grow(ann, small, mebibytes(20), std::chrono::seconds(9));
  EXPECT_FALSE(machine.is_answered(first));
  EXPECT_EQ(machine.denial(second).reason, Denial::Reason::kSliceLimit);
}

TEST(BrokerGrowLimits, NameTheTenantsLimitThatAllItsSessionsFill) {
  Policy policy = small_policy();
  policy.tenants[1].quotas[0].limit = mebibytes(20);
  Machine machine(policy);
  const SessionId one = machine.connect(2);
  const SessionId two = machine.connect(2);
  machine.get(one, machine.slice(one), mebibytes(16));
  const RequestId id = machine.grow(two, machine.slice(two), mebibytes(6));
  ASSERT_TRUE(machine.is_answered(id));
  const Denial& denial = machine.denial(id);
  EXPECT_EQ(denial.reason, Denial::Reason::kTenantLimit);
  EXPECT_EQ(denial.charged, mebibytes(16));
  ASSERT_EQ(denial.holders.size(), 1u);
  EXPECT_EQ(denial.holders[0].session, one);
  EXPECT_THAT(machine.why(id),
              AllOf(HasSubstr("'bob'"), HasSubstr("20MiB"), HasSubstr("pid 1002 train 16MiB")));
}

TEST(BrokerGrowLimits, LetAWaiterGoWhenAnotherSessionOfItsTenantMakesRoom) {
  Policy policy = small_policy();
  policy.tenants[1].quotas[0].limit = mebibytes(20);
  Machine machine(policy);
  const SessionId one = machine.connect(2);
  const SliceId slice = machine.slice(one);
  const Grant grant = machine.get(one, slice, mebibytes(16));
  const SessionId two = machine.connect(2);
  const RequestId id = machine.grow(two, machine.slice(two), mebibytes(6), std::chrono::seconds(9));
  ASSERT_FALSE(machine.is_answered(id));
  ASSERT_TRUE(machine.give_back(one, slice, grant));
  EXPECT_TRUE(machine.is_granted(id));
}

TEST(BrokerGrowLimits, RefuseAtOnceWhatPassesTheTenantsLimitByItself) {
  Policy policy = small_policy();
  policy.tenants[1].quotas[0].limit = mebibytes(20);
  Machine machine(policy);
  const SessionId bob = machine.connect(2);
  const RequestId id =
      machine.grow(bob, machine.slice(bob, mebibytes(30)), mebibytes(22), std::chrono::seconds(9));
  ASSERT_TRUE(machine.is_answered(id));
  EXPECT_EQ(machine.denial(id).reason, Denial::Reason::kTenantLimit);
}

TEST(BrokerGrowLimits, RefuseAtOnceWhatTheGuaranteesOfOthersNeverLeaveRoomFor) {
  Machine machine;
  const SessionId bob = machine.connect(2);
  const RequestId id = machine.grow(bob, machine.slice(bob), mebibytes(50), std::chrono::seconds(9));
  ASSERT_TRUE(machine.is_answered(id)) << "it would wait in vain, and hold up everybody";
  EXPECT_EQ(machine.denial(id).reason, Denial::Reason::kPoolSize);
  EXPECT_EQ(machine.denial(id).guaranteed_to_others, mebibytes(16));
}

TEST(BrokerGrowLimits, BoundTheRequestsThatASessionHasWaiting) {
  Policy policy = small_policy();
  policy.max_requests_per_session = 2;
  Machine machine(policy);
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(48));
  const SessionId ann = machine.connect(1);
  machine.get(ann, machine.slice(ann), mebibytes(16));
  const SliceId more = machine.slice(ann);
  machine.grow(ann, more, kPiece, std::chrono::seconds(9));
  const RequestId second = machine.grow(ann, more, kPiece, std::chrono::seconds(9));
  EXPECT_EQ(machine.code(machine.grow(ann, more, kPiece, std::chrono::seconds(9))), Code::kResourceExhausted);
  machine.cancel(second);
  EXPECT_FALSE(machine.is_answered(machine.grow(ann, more, kPiece, std::chrono::seconds(9))));
}

// No memory left for anybody but ann; two requests of each user at most, and sixteen of all.
class BrokerGrowUsers : public testing::Test {
 protected:
  static Policy policy() {
    Policy policy = small_policy();
    policy.max_requests = 16;
    policy.others = {{{}, mebibytes(64)}};
    return policy;
  }
  void SetUp() override {
    const SessionId bob = machine.connect(2);
    machine.get(bob, machine.slice(bob), mebibytes(48));
  }
  /// From a session of its own.
  RequestId ask(std::uint32_t uid) {
    const SessionId session = machine.connect(uid);
    return machine.grow(session, machine.slice(session), kPiece, std::chrono::seconds(9));
  }
  bool is_refused(RequestId id) {
    return machine.is_answered(id) && machine.code(id) == Code::kResourceExhausted;
  }

  Machine machine{policy()};
};

TEST_F(BrokerGrowUsers, HaveAnEighthOfTheRequestsThatMayWaitEach) {
  const RequestId first = ask(100);
  EXPECT_FALSE(machine.is_answered(ask(100)));
  EXPECT_TRUE(is_refused(ask(100)));
  EXPECT_FALSE(machine.is_answered(ask(101))) << "another user has its own eighth";
  machine.cancel(first);
  EXPECT_FALSE(machine.is_answered(ask(100)));
}

TEST_F(BrokerGrowUsers, AreRefusedWhereAllRequestsThatMayWaitDoExceptOneEach) {
  for (std::uint32_t uid = 100; uid < 107; ++uid) {
    ask(uid);
    EXPECT_FALSE(machine.is_answered(ask(uid)));
  }
  ask(107);
  const RequestId last = ask(108);
  EXPECT_TRUE(is_refused(ask(107)));
  EXPECT_FALSE(machine.is_answered(ask(109))) << "a user with none waiting may have one";
  EXPECT_TRUE(is_refused(ask(109)));
  machine.cancel(last);
  EXPECT_TRUE(is_refused(ask(109))) << "sixteen wait";
}

TEST_F(BrokerGrow, GrantsExtentsOfTheSizeThatIsPreferred) {
  Policy policy = small_policy();
  policy.devices = {device("GPU-0", gibibytes(1))};
  Machine large(policy);
  const SessionId bob = large.connect(2);
  const SliceId small = large.slice(bob);
  const RequestId preferred = large.grow(bob, {{small, mebibytes(16), {}, kPiece}});
  EXPECT_EQ(large.answers.at(preferred)->leases.size(), 8u);
  EXPECT_EQ(large.answers.at(large.grow(bob, small, mebibytes(16)))->leases.size(), 2u);
}

TEST_F(BrokerGrow, DoesNotGrantWhileDraining) {
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(48));
  const RequestId waiting = machine.grow(ann, slice, mebibytes(18), std::chrono::seconds(9));
  machine.broker.drain();
  machine.collect();
  EXPECT_EQ(machine.code(waiting), Code::kUnavailable);
  EXPECT_EQ(machine.code(machine.grow(ann, slice, kPiece)), Code::kUnavailable);
  EXPECT_EQ(machine.broker.open_session(peer_of(1), "", machine.now).error().code, Code::kUnavailable);
  machine.die(bob);
  machine.die(ann);
  EXPECT_TRUE(machine.is_as_new()) << "what is lent still comes back";
}

}  // namespace
}  // namespace gpumem::core
