#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// What `gpumem why` is answered.

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Reason = Denial::Reason;

// A lab of ann and bob, of at most 48 MiB of the 64 MiB, 16 of which are ann's for sure; cid is alone.
class BrokerExplain : public testing::Test {
 protected:
  static Policy policy() {
    Policy policy;
    policy.devices = {device("GPU-0", mebibytes(64))};
    policy.tenants = {parent("lab", {{{}, mebibytes(48)}}),
                      user("ann", 1, {{mebibytes(16), mebibytes(64)}}, "lab"),
                      user("bob", 2, {{{}, mebibytes(40)}}, "lab"), user("cid", 3, {{{}, mebibytes(64)}})};
    return policy;
  }
  Explanation why(SessionId session, bool everything = false) const {
    return machine.broker.explain_session(session, everything, machine.now).value();
  }
  // The only one that waits.
  Denial denial_of(SessionId session) const {
    const Explanation explanation = why(session);
    EXPECT_EQ(explanation.waiting.size(), 1u);
    return explanation.waiting.at(0);
  }
  Machine machine{policy()};
  SessionId ann = machine.connect(1);
  SessionId bob = machine.connect(2);
  SessionId cid = machine.connect(3);
};

TEST_F(BrokerExplain, KnowsNoStrangers) {
  EXPECT_EQ(machine.broker.explain_session(SessionId{99}, true, machine.now).error().code, Code::kNotFound);
  EXPECT_EQ(machine.broker.explain_tenant("eve", true, machine.now).error().code, Code::kNotFound);
}

TEST_F(BrokerExplain, TellsHowAUserWithoutASessionWouldStand) {
  machine.get(cid, machine.slice(cid), mebibytes(40));
  EXPECT_EQ(machine.broker.explain_newcomer(7).error().code, Code::kPermissionDenied)
      << "there is no default";
  Policy open = policy();
  open.others = {{{{}, mebibytes(32)}}};
  ASSERT_TRUE(machine.broker.apply(open, machine.now));
  const auto explanation = machine.broker.explain_newcomer(7);
  ASSERT_TRUE(explanation);
  EXPECT_TRUE(explanation->is_newcomer);
  EXPECT_EQ(explanation->tenant, "uid:7");
  EXPECT_EQ(explanation->devices.at(0).quota.limit, mebibytes(32));
  EXPECT_EQ(explanation->devices.at(0).available, mebibytes(8)) << "24 are free, 16 are kept for ann";
  const auto first = machine.connect(7);
  EXPECT_EQ(why(first).devices.at(0).available, mebibytes(8));
}

TEST_F(BrokerExplain, OfAUserWhoIsATenantNamesIt) {
  const auto named = machine.broker.explain_newcomer(3);
  ASSERT_FALSE(named);
  EXPECT_THAT(named.error().message, HasSubstr("uid:3 is tenant 'cid'"));
}

TEST_F(BrokerExplain, TellsHowATenantStands) {
  machine.get(bob, machine.slice(bob), mebibytes(8));
  ASSERT_TRUE(machine.broker.charge(bob, {"GPU-0", mebibytes(4)}, machine.now));
  const Explanation explanation = why(bob);
  EXPECT_EQ(explanation.tenant, "bob");
  EXPECT_THAT(explanation.waiting, IsEmpty());
  ASSERT_EQ(explanation.devices.size(), 1u);
  const Standing& standing = explanation.devices[0];
  EXPECT_EQ(standing.charged, mebibytes(12));
  EXPECT_EQ(standing.declared, mebibytes(4));
  EXPECT_EQ(standing.burst, mebibytes(12));
  EXPECT_EQ(standing.debt, Bytes{0});
  EXPECT_EQ(standing.available, mebibytes(20)) << "the lab's 48, less 12, less 16 kept for ann";
  EXPECT_FALSE(standing.asked_back_until);
}

TEST_F(BrokerExplain, SumsUpAGroupWithItsMembers) {
  machine.get(bob, machine.slice(bob), mebibytes(24));
  ASSERT_TRUE(machine.broker.charge(ann, {"GPU-0", mebibytes(6)}, machine.now));
  const RequestId id = machine.grow(bob, machine.slice(bob), mebibytes(10), seconds(9));
  const auto lab = machine.broker.explain_tenant("lab", false, machine.now);
  ASSERT_TRUE(lab);
  EXPECT_EQ(lab->devices[0].charged, mebibytes(30));
  EXPECT_EQ(lab->devices[0].declared, mebibytes(6));
  ASSERT_EQ(lab->waiting.size(), 1u);
  EXPECT_EQ(lab->waiting[0].request, id);
  EXPECT_EQ(lab->waiting[0].tenant, "bob");
}

TEST_F(BrokerExplain, NamesTheLimitThatStandsInTheWayAndWhatWouldHelp) {
  machine.get(bob, machine.slice(bob), mebibytes(24));
  machine.grow(bob, machine.slice(bob), mebibytes(10), seconds(9));
  const Denial denial = denial_of(bob);
  EXPECT_EQ(denial.reason, Reason::kTenantLimit);
  EXPECT_EQ(denial.limiting_tenant, "lab");
  EXPECT_EQ(denial.limiting_limit, mebibytes(48));
  EXPECT_FALSE(denial.soonest.within) << denial.soonest.why;
  EXPECT_THAT(denial.soonest.why, AllOf(HasSubstr("'lab'"), HasSubstr("2MiB")));
  ASSERT_EQ(denial.holders.size(), 1u);
  EXPECT_EQ(denial.holders[0].session, bob);
  EXPECT_EQ(denial.holders[0].charged, mebibytes(24));
}

TEST_F(BrokerExplain, NamesTheLimitAndTheGuaranteesBelowItWhereLessThanTheLimitCanNeverBeHad) {
  const RequestId id = machine.grow(bob, machine.slice(bob), mebibytes(34), seconds(9));
  const Denial& denial = machine.denial(id);
  EXPECT_EQ(denial.reason, Reason::kPoolSize);
  EXPECT_THAT(explain(denial),
              HasSubstr("the limit of 'lab', which it belongs to, is 48MiB, of which 16MiB are guaranteed to "
                        "others below it: ask for 32MiB at most"));
  EXPECT_THAT(explain(denial), Not(HasSubstr("64MiB")));
  EXPECT_TRUE(machine.is_granted(machine.grow(bob, machine.slice(bob), mebibytes(32), seconds(9))));
}

TEST_F(BrokerExplain, NamesWhatIsKeptBelowALimitThatWouldHaveRoomWithoutIt) {
  machine.get(bob, machine.slice(bob), mebibytes(24));
  const RequestId id = machine.grow(bob, machine.slice(bob), mebibytes(10));
  EXPECT_EQ(machine.denial(id).limiting_kept, mebibytes(16));
  EXPECT_THAT(explain(machine.denial(id)),
              AllOf(HasSubstr("of 48MiB, of which 24MiB are charged already"),
                    HasSubstr("and 16MiB are kept for guarantees of others below it; give memory back")));
}

TEST_F(BrokerExplain, NamesTheSixteenLargestHoldersAlone) {
  std::vector<SessionId> holders;
  for (int i = 0; i < 17; ++i) {
    holders.push_back(machine.connect(3));
    machine.get(holders.back(), machine.slice(holders.back()), mebibytes(i == 3 ? 4 : 2));
  }
  machine.grow(cid, machine.slice(cid), mebibytes(20), seconds(9));
  const Denial denial = denial_of(cid);
  ASSERT_EQ(denial.holders.size(), 16u);
  EXPECT_EQ(denial.holders[0].session, holders[3]);
  EXPECT_EQ(denial.holders[15].session, holders[15]);
}

TEST_F(BrokerExplain, SaysThatMemoryBelowTheLimitIsOnItsWayBack) {
  const SliceId slice = machine.slice(bob);
  const Grant grant = machine.get(bob, slice, mebibytes(24));
  machine.jobs_run_at_once = false;
  ASSERT_TRUE(machine.give_back(bob, slice, grant));
  machine.grow(bob, slice, mebibytes(10), seconds(9));
  const Denial denial = denial_of(bob);
  EXPECT_EQ(denial.reason, Reason::kTenantLimit);
  EXPECT_EQ(denial.soonest.within, machine.broker.policy().return_grace);
}

TEST_F(BrokerExplain, SaysUntilWhenBorrowersAreAsked) {
  machine.get(cid, machine.slice(cid), mebibytes(48));
  machine.grow(bob, machine.slice(bob), mebibytes(8), seconds(9));
  machine.pass(seconds(1));
  const Denial denial = denial_of(bob);
  EXPECT_EQ(denial.reason, Reason::kNoMemory);
  EXPECT_EQ(denial.asked_back, mebibytes(8));
  EXPECT_EQ(denial.soonest.within, seconds(1));
  EXPECT_EQ(denial.waited, seconds(1));
  const Standing asked = why(cid).devices[0];
  EXPECT_EQ(asked.asked_back, mebibytes(8));
  EXPECT_EQ(asked.asked_back_until, machine.now + seconds(1));
}

TEST_F(BrokerExplain, SaysUntilWhenThoseBelowAFullLimitAreAsked) {
  machine.get(bob, machine.slice(bob), mebibytes(24));
  const SessionId other = machine.connect(2);
  machine.grow(other, machine.slice(other), mebibytes(10), seconds(9));
  machine.pass(seconds(1));
  EXPECT_EQ(denial_of(other).soonest.within, seconds(1));
  EXPECT_THAT(denial_of(other).soonest.why, AllOf(HasSubstr("2MiB"), HasSubstr("processes were asked")));
  machine.pass(seconds(2));
  EXPECT_FALSE(denial_of(other).soonest.within);
  EXPECT_THAT(denial_of(other).soonest.why, AllOf(HasSubstr("'lab'"), HasSubstr("2MiB")));
}

TEST_F(BrokerExplain, PromisesNothingOfBorrowersThatHaveNotGivenBackInTime) {
  machine.get(cid, machine.slice(cid), mebibytes(48));
  machine.grow(bob, machine.slice(bob), mebibytes(8), seconds(9));
  machine.pass(seconds(3));
  EXPECT_FALSE(denial_of(bob).soonest.within);
  EXPECT_THAT(denial_of(bob).soonest.why, HasSubstr("have not"));
}

TEST_F(BrokerExplain, SaysUntilWhenABorrowerIsEnded) {
  Policy harsh = policy();
  harsh.devices[0].reclaim.lend_guarantees = true;
  harsh.devices[0].reclaim.escalation = Escalation::kEndSession;
  ASSERT_TRUE(machine.broker.apply(harsh, machine.now));
  machine.get(cid, machine.slice(cid), mebibytes(64));
  machine.grow(ann, machine.slice(ann), mebibytes(16), seconds(60));
  EXPECT_EQ(denial_of(ann).soonest.within, seconds(2) + seconds(5));
  machine.pass_in_steps(seconds(3));
  EXPECT_EQ(denial_of(ann).soonest.within, seconds(4) + machine.broker.policy().return_grace);
}

TEST_F(BrokerExplain, SaysHowMuchIsLackingWhereNobodyIsAsked) {
  machine.get(cid, machine.slice(cid), mebibytes(30));
  machine.grow(bob, machine.slice(bob), mebibytes(26), seconds(9));
  const Denial denial = denial_of(bob);
  EXPECT_EQ(denial.reason, Reason::kNoMemory);
  EXPECT_FALSE(denial.soonest.within);
  EXPECT_THAT(denial.soonest.why, HasSubstr("8MiB"));
}

TEST_F(BrokerExplain, SaysWhoseTurnItIs) {
  const SessionId other = machine.connect(3);
  machine.get(bob, machine.slice(bob), mebibytes(20));
  machine.get(cid, machine.slice(cid), mebibytes(20));
  const RequestId large = machine.grow(cid, machine.slice(cid), mebibytes(10), seconds(9));
  machine.grow(other, machine.slice(other), mebibytes(6), seconds(9));
  const Denial behind = denial_of(other);
  EXPECT_EQ(behind.reason, Reason::kTurn);
  EXPECT_EQ(behind.waiters_ahead, 1u);
  EXPECT_EQ(denial_of(cid).request, large);
  EXPECT_EQ(denial_of(cid).waiters_ahead, 0u);
}

TEST_F(BrokerExplain, NamesOtherTenantsToWhoMaySeeEverythingOnly) {
  machine.get(cid, machine.slice(cid), mebibytes(40));
  machine.grow(bob, machine.slice(bob), mebibytes(30), seconds(9));
  EXPECT_THAT(why(bob).waiting.at(0).other_tenants, IsEmpty());
  const auto others = why(bob, true).waiting.at(0).other_tenants;
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].tenant, "cid");
  EXPECT_EQ(others[0].charged, mebibytes(40));
  const Explanation own = why(bob);
  for (const Denial::Holder& holder : own.waiting.at(0).holders) EXPECT_EQ(holder.tenant, "bob");
}

TEST_F(BrokerExplain, NamesADebt) {
  machine.get(cid, machine.slice(cid), mebibytes(40));
  Policy lower = policy();
  lower.tenants[3].quotas[0].limit = mebibytes(30);
  ASSERT_TRUE(machine.broker.apply(lower, machine.now));
  machine.collect();
  machine.grow(cid, machine.slice(cid), mebibytes(2), seconds(9));
  const Denial denial = denial_of(cid);
  EXPECT_EQ(denial.reason, Reason::kDebt);
  EXPECT_THAT(denial.soonest.why, HasSubstr("12MiB"));
  EXPECT_EQ(why(cid).devices[0].debt, mebibytes(10));
}

TEST_F(BrokerExplain, SaysWhatIsPromisedWhereOthersHaveUsedUpTheirPromisesOutsideThePool) {
  ASSERT_TRUE(machine.broker.charge(ann, {"GPU-0", mebibytes(16)}, machine.now));
  machine.get(cid, machine.slice(cid), mebibytes(40));
  machine.grow(cid, machine.slice(cid), mebibytes(16), seconds(9));
  const Denial denial = denial_of(cid);
  EXPECT_EQ(denial.reason, Reason::kPoolSize);
  EXPECT_EQ(denial.guaranteed_to_others, mebibytes(16));
  EXPECT_THAT(denial.soonest.why, HasSubstr("gives memory back"));
}

TEST_F(BrokerExplain, SaysNeverWhereNothingHelps) {
  const RequestId id = machine.grow(cid, machine.slice(cid), mebibytes(50), seconds(9));
  EXPECT_EQ(machine.denial(id).reason, Reason::kPoolSize);
  EXPECT_THAT(machine.denial(id).soonest.why, HasSubstr("never"));
  const RequestId own = machine.grow(bob, machine.slice(bob, mebibytes(64)), mebibytes(42), seconds(9));
  EXPECT_EQ(machine.denial(own).reason, Reason::kTenantLimit);
  EXPECT_THAT(machine.denial(own).soonest.why, HasSubstr("never"));
}

}  // namespace
}  // namespace gpumem::core
