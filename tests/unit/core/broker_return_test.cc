#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

class BrokerReturn : public testing::Test {
 protected:
  Code give_back(std::vector<LeaseId> leases) { return give_back(ann, slice, std::move(leases)); }
  Code give_back(SessionId session, SliceId from, std::vector<LeaseId> leases) {
    const auto answer = machine.broker.give_back(session, from, leases, machine.now);
    machine.collect();
    return answer ? Code{0} : answer.error().code;
  }
  Machine machine;
  SessionId ann = machine.connect(1);
  SliceId slice = machine.slice(ann);
  Grant grant = machine.get(ann, slice, mebibytes(14));
  std::vector<LeaseId> leases = Machine::leases_of(grant);
};

TEST_F(BrokerReturn, FreesWhatTheClientHasLetGoOf) {
  machine.stop_using(ann, grant);
  EXPECT_EQ(give_back(leases), Code{0});
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerReturn, MayComeInParts) {
  ASSERT_GE(leases.size(), 3u);
  machine.stop_using(ann, grant);
  EXPECT_EQ(give_back({leases[1]}), Code{0});
  EXPECT_LT(machine.charged("ann"), mebibytes(14));
  EXPECT_EQ(give_back({leases[0], leases[2]}), Code{0});
}

TEST_F(BrokerReturn, OfNothingChangesNothing) {
  EXPECT_EQ(give_back({}), Code{0});
  EXPECT_EQ(machine.charged("ann"), mebibytes(14));
}

TEST_F(BrokerReturn, IsAllOrNothing) {
  auto wrong = leases;
  wrong.push_back(LeaseId{999});
  EXPECT_EQ(give_back(wrong), Code::kNotFound);
  wrong.back() = leases.front();
  EXPECT_EQ(give_back(wrong), Code::kNotFound) << "named twice";
  EXPECT_EQ(machine.charges("ann")[Charge::kActive], mebibytes(14));
}

TEST_F(BrokerReturn, IsRefusedASecondTime) {
  EXPECT_EQ(give_back({leases[0]}), Code{0});
  EXPECT_EQ(give_back({leases[0]}), Code::kNotFound) << "quarantined: still in use";
  machine.stop_using(ann, grant);
  machine.pass_in_steps(std::chrono::seconds(5));
  EXPECT_EQ(give_back({leases[0]}), Code::kNotFound) << "freed";
}

TEST_F(BrokerReturn, IsRefusedForTheLeasesOfOthers) {
  const SessionId other = machine.connect(1);
  const SliceId others = machine.slice(other);
  EXPECT_EQ(give_back(other, others, leases), Code::kNotFound);
  EXPECT_EQ(give_back(other, slice, leases), Code::kNotFound);
  EXPECT_EQ(give_back(ann, machine.slice(ann), leases), Code::kNotFound) << "another slice of its own";
  EXPECT_EQ(give_back(SessionId{99}, slice, leases), Code::kUnauthenticated);
  EXPECT_EQ(machine.charges("ann")[Charge::kActive], mebibytes(14));
}

TEST_F(BrokerReturn, OfAnOfferThatWasNeverAcceptedIsAllowed) {
  const RequestId id = machine.grow(ann, slice, mebibytes(6));
  const Grant offered = machine.answers.at(id).value();
  EXPECT_TRUE(machine.give_back(ann, slice, offered));
  EXPECT_EQ(machine.broker.accept(ann, offered.id).error().code, Code::kNotFound);
  EXPECT_EQ(machine.charged("ann"), mebibytes(14));
}

TEST_F(BrokerReturn, OfAGrantWhoseAnswerWasLostNeedsNoWordOfTheClient) {
  const RequestId id = machine.grow(ann, slice, mebibytes(2));
  const Grant lost = machine.answers.at(id).value();
  machine.stop_using(ann, lost);
  machine.broker.abandon(lost.id, machine.now);
  machine.collect();
  EXPECT_EQ(machine.charged("ann"), mebibytes(14));
}

TEST_F(BrokerReturn, OfAGrantThatWasAcceptedIsNotForced) {
  machine.broker.abandon(grant.id, machine.now);
  machine.collect();
  EXPECT_EQ(machine.charges("ann")[Charge::kActive], mebibytes(14));
}

TEST_F(BrokerReturn, OfPartOfAnOfferLeavesTheRestToAccept) {
  const RequestId id = machine.grow(ann, slice, mebibytes(6));
  const Grant offered = machine.answers.at(id).value();
  ASSERT_EQ(offered.leases.size(), 3u);
  machine.stop_using(ann, offered);
  EXPECT_EQ(give_back({offered.leases[0].lease}), Code{0});
  EXPECT_TRUE(machine.broker.accept(ann, offered.id));
  EXPECT_EQ(machine.charges("ann")[Charge::kActive], mebibytes(18));
}

TEST_F(BrokerReturn, MakesRoomInTheSliceAtOnceButInTheLimitOnlyWhenProved) {
  const SliceId small = machine.slice(ann, mebibytes(50));
  const Grant held = machine.get(ann, small, mebibytes(50));
  ASSERT_TRUE(machine.keep_but_give_back(ann, small, held));
  const RequestId id = machine.grow(ann, small, mebibytes(4), std::chrono::seconds(60));
  EXPECT_FALSE(machine.is_answered(id));
  machine.stop_using(ann, held);
  machine.pass_in_steps(std::chrono::seconds(5));
  EXPECT_TRUE(machine.is_granted(id));
}

}  // namespace
}  // namespace gpumem::core
