#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

using testing::HasSubstr;

Code refused(Machine& machine, std::uint32_t uid) {
  const auto session = machine.broker.open_session(peer_of(uid), "x", machine.now);
  return session ? Code{0} : session.error().code;
}

TEST(BrokerStart, IsSettledOnlyOnceItsPoolsExist) {
  Machine machine(small_policy(), Machine::Start::kEmpty);
  EXPECT_FALSE(machine.broker.settled());
  EXPECT_EQ(machine.free(), Bytes{0});
  ASSERT_EQ(machine.broker.next_deadline(), TimePoint{});
  machine.pass({});
  EXPECT_TRUE(machine.broker.settled());
  EXPECT_TRUE(machine.is_as_new());
}

TEST(BrokerStart, ServesARequestThatCameBeforeThePool) {
  Machine machine(small_policy(), Machine::Start::kEmpty);
  machine.jobs_run_at_once = false;
  const SessionId session = machine.connect(1);
  const RequestId request =
      machine.grow(session, machine.slice(session), mebibytes(32), std::chrono::seconds(1));
  machine.collect();
  ASSERT_FALSE(machine.is_answered(request));
  ASSERT_TRUE(machine.run_job());
  EXPECT_TRUE(machine.is_granted(request)) << "as soon as the memory is there, not at the next event";
}

TEST(BrokerSession, IsChargedToTheTenantOfItsUser) {
  Machine machine;
  const SessionId ann = machine.connect(1);
  EXPECT_EQ(machine.broker.tenant_name(ann), "ann");
  EXPECT_TRUE(machine.broker.knows(ann));
  EXPECT_EQ(machine.broker.sessions()[0].peer.uid, 1u);
}

TEST(BrokerSession, IsRefusedToWhomNoRuleCovers) {
  Machine machine;
  EXPECT_EQ(refused(machine, 9), Code::kPermissionDenied);
}

TEST(BrokerSession, IsRefusedPastTheMost) {
  Policy policy = small_policy();
  policy.max_sessions = 2;
  Machine machine(policy);
  const SessionId first = machine.connect(1);
  machine.connect(2);
  EXPECT_EQ(refused(machine, 1), Code::kResourceExhausted);
  machine.say_goodbye(first);
  EXPECT_EQ(refused(machine, 1), Code{0});
}

TEST(BrokerSession, OfGuaranteedTenantsAndAdministratorsFindsAPlaceWhereOthersHaveTakenAllTheirs) {
  Policy policy = small_policy();
  policy.max_sessions = 16;
  Machine machine(policy);
  for (int i = 0; i < 14; ++i) machine.connect(2);
  EXPECT_EQ(refused(machine, 2), Code::kResourceExhausted);
  EXPECT_TRUE(machine.broker.open_session(peer_of(2), "admin", machine.now, {}, true));
  machine.connect(1);
  EXPECT_EQ(refused(machine, 1), Code::kResourceExhausted);
}

TEST(BrokerSession, OfASubordinateUserIsDecidedAboutByItsOwnerAndDecidesAboutNone) {
  Machine machine;
  Peer contained = peer_of(100'000);
  contained.owner = Owner{1, {}};
  const SessionId own = machine.connect(1);
  const SessionId inner = machine.broker.open_session(contained, "", machine.now).value();
  EXPECT_EQ(machine.broker.tenant_name(inner), "ann");
  const auto ends = [&](const Peer& by, SessionId session) {
    return machine.broker.end_by_request(session, {by, false}, machine.now).has_value();
  };
  EXPECT_FALSE(ends(contained, own)) << "it has no right of its owner's";
  EXPECT_TRUE(ends(contained, inner));
  EXPECT_TRUE(ends(peer_of(1), inner));
  EXPECT_FALSE(ends(peer_of(2), inner));
}

TEST(BrokerSession, IsRefusedPastTheMostOfItsTenantWhileOthersComeIn) {
  Policy policy = small_policy();
  policy.max_sessions_per_tenant = 1;
  Machine machine(policy);
  const SessionId first = machine.connect(1);
  EXPECT_EQ(refused(machine, 1), Code::kResourceExhausted);
  EXPECT_EQ(refused(machine, 2), Code{0});
  machine.say_goodbye(first);
  EXPECT_EQ(refused(machine, 1), Code{0});
}

TEST(BrokerSession, CountsAgainstTheMostWhileItIsChargedForMemory) {
  Policy policy = small_policy();
  policy.max_sessions = 1;
  Machine machine(policy);
  const SessionId session = machine.connect(1);
  machine.get(session, machine.slice(session), kPiece);
  machine.lose_lane(session);
  EXPECT_EQ(refused(machine, 2), Code::kResourceExhausted);
  machine.die(session);
  EXPECT_EQ(refused(machine, 2), Code{0});
}

class BrokerOthers : public testing::Test {
 protected:
  static Policy policy() {
    Policy policy = small_policy();
    policy.others = {{mebibytes(20), mebibytes(32)}};
    return policy;
  }
  Machine machine{policy()};
};

// The lane sees the end of its process, and so does the watch of the process: which is first depends on the
// machine.
TEST(BrokerSession, DiesOnceHoweverOftenItsEndIsSeen) {
  Machine machine;
  const SessionId session = machine.connect(1);
  machine.get(session, machine.slice(session), mebibytes(2));
  machine.jobs_run_at_once = false;
  machine.die(session);
  machine.die(session);
  machine.lose_lane(session);
  EXPECT_EQ(machine.events_of(Event::Kind::kDied).size(), 1u);
  machine.run_jobs();
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerOthers, AreATenantEachWhileTheyAreConnected) {
  const SessionId first = machine.connect(9);
  const SessionId second = machine.connect(9);
  EXPECT_EQ(machine.broker.tenant_name(first), machine.broker.tenant_name(second));
  const std::string name = machine.broker.tenant_name(first);
  EXPECT_EQ(machine.broker.devices()[0].guaranteed, mebibytes(36));
  machine.say_goodbye(first);
  EXPECT_TRUE(machine.knows_tenant(name));
  machine.say_goodbye(second);
  EXPECT_FALSE(machine.knows_tenant(name)) << "idle and unconfigured: retired";
  EXPECT_EQ(machine.broker.devices()[0].guaranteed, mebibytes(16));
}

TEST_F(BrokerOthers, AreRetiredOnlyAfterTheirLastByteIsFree) {
  const SessionId session = machine.connect(9);
  const std::string name = machine.broker.tenant_name(session);
  machine.get(session, machine.slice(session), kPiece);
  machine.lose_lane(session);
  EXPECT_TRUE(machine.knows_tenant(name));
  machine.die(session);
  EXPECT_FALSE(machine.knows_tenant(name));
  EXPECT_EQ(machine.forgotten, std::vector{session});
}

TEST_F(BrokerOthers, AreRefusedWhenTheirGuaranteeCannotBePromised) {
  machine.connect(9);
  machine.connect(10);
  const auto third = machine.broker.open_session(peer_of(11), "x", machine.now);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::kResourceExhausted);
  EXPECT_THAT(third.error().message, AllOf(HasSubstr("20MiB"), HasSubstr("56MiB"), HasSubstr("64MiB")));
  EXPECT_EQ(machine.broker.devices()[0].guaranteed, mebibytes(56));
}

TEST(BrokerOthersOnTwoDevices, LeaveTheirGuaranteeToWaitersOfEveryDeviceWhenTheyGo) {
  Policy policy = small_policy();
  policy.devices.push_back(device("GPU-1", mebibytes(64)));
  policy.tenants = {user("bob", 2, {{{}, mebibytes(64)}, {}}), user("cid", 3, {{{}, mebibytes(64)}, {}})};
  policy.others = {{mebibytes(32), mebibytes(32)}, {{}, mebibytes(32)}};
  Machine machine(policy);
  const SessionId eve = machine.connect(9);
  const SessionId bob = machine.connect(2);
  const SessionId cid = machine.connect(3);
  machine.get(cid, machine.slice(cid), mebibytes(32));
  machine.get(eve, machine.slice(eve, {}, "GPU-1"), kPiece);
  const RequestId more = machine.grow(bob, machine.slice(bob), kPiece, std::chrono::seconds(9));
  EXPECT_FALSE(machine.is_answered(more));
  machine.die(eve);
  EXPECT_EQ(machine.forgotten, std::vector{eve});
  EXPECT_TRUE(machine.is_granted(more)) << machine.why(more);
}

TEST(BrokerFigures, TellASessionWhatItsTenantMayHave) {
  Machine machine;
  const SessionId ann = machine.connect(1);
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(40));
  const BrokerFigures figures = machine.broker.figures(ann);
  EXPECT_EQ(figures.session, ann.value);
  EXPECT_EQ(figures.device_count, 1u);
  EXPECT_EQ(figures.devices[0].pool, mebibytes(64).count);
  EXPECT_EQ(figures.devices[0].free, mebibytes(24).count);
  EXPECT_EQ(figures.devices[0].guarantee, mebibytes(16).count);
  EXPECT_EQ(figures.devices[0].available, mebibytes(24).count);
  EXPECT_EQ(machine.broker.figures(bob).devices[0].charged, mebibytes(40).count);
  EXPECT_EQ(machine.broker.figures(bob).devices[0].available, mebibytes(8).count);
}

}  // namespace
}  // namespace gpumem::core
