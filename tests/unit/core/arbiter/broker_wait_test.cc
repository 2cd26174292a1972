#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

// Of the 64 MiB, bob has 48: what is left is what ann's guarantee of 16 needs.
class BrokerWait : public testing::Test {
 protected:
  Machine machine;
  SessionId ann = machine.connect(1);
  SliceId anns = machine.slice(ann);
  SessionId bob = machine.connect(2);
  SliceId bobs = machine.slice(bob);
  Grant large = machine.get(bob, bobs, mebibytes(40));
  Grant small = machine.get(bob, bobs, mebibytes(8));
};

TEST_F(BrokerWait, EndsAtOnceForWhomDoesNotWait) {
  const RequestId id = machine.grow(ann, anns, mebibytes(18));
  EXPECT_EQ(machine.code(id), Code::kResourceExhausted);
  EXPECT_EQ(machine.denial(id).reason, Denial::Reason::kNoMemory);
  EXPECT_EQ(machine.denial(id).free, mebibytes(16));
  EXPECT_EQ(machine.denial(id).charged_to_others, mebibytes(48));
  EXPECT_EQ(machine.broker.next_deadline(), std::nullopt);
}

TEST_F(BrokerWait, EndsWithTheMemoryAsSoonAsItIsFree) {
  const RequestId id = machine.grow(ann, anns, mebibytes(18), seconds(9));
  EXPECT_FALSE(machine.is_answered(id));
  ASSERT_TRUE(machine.give_back(bob, bobs, small));
  EXPECT_TRUE(machine.is_granted(id));
}

TEST_F(BrokerWait, EndsAtItsDeadlineWithADenialThatSaysWhy) {
  const RequestId first = machine.grow(ann, anns, mebibytes(18), seconds(9));
  const RequestId second = machine.grow(ann, anns, mebibytes(18), seconds(2));
  ASSERT_EQ(machine.broker.next_deadline(), machine.now + seconds(2));
  machine.pass(seconds(2) - std::chrono::nanoseconds(1));
  EXPECT_FALSE(machine.is_answered(second));
  machine.pass(std::chrono::nanoseconds(1));
  EXPECT_EQ(machine.code(second), Code::kDeadlineExceeded);
  EXPECT_EQ(machine.denial(second).waiters_ahead, 1u);
  EXPECT_THAT(machine.why(second), HasSubstr("waited 2.0 s"));
  EXPECT_FALSE(machine.is_answered(first));
}

TEST_F(BrokerWait, IsGrantedForAMomentWhileMemoryIsOnItsWayBack) {
  machine.jobs_run_at_once = false;
  ASSERT_TRUE(machine.give_back(bob, bobs, large));
  ASSERT_EQ(machine.charges("bob")[Charge::kReturning], mebibytes(40));
  const RequestId id = machine.grow(bob, bobs, mebibytes(40));
  EXPECT_FALSE(machine.is_answered(id)) << "nobody holds that memory any more";
  machine.run_jobs();
  EXPECT_TRUE(machine.is_granted(id));
}

TEST_F(BrokerWait, ForMemoryOnItsWayBackEndsWithTheGrace) {
  machine.jobs_run_at_once = false;
  ASSERT_TRUE(machine.give_back(bob, bobs, large));
  const RequestId id = machine.grow(bob, bobs, mebibytes(40));
  machine.pass(machine.broker.policy().return_grace);
  EXPECT_EQ(machine.code(id), Code::kResourceExhausted) << "the client did not ask to wait";
}

TEST_F(BrokerWait, IsCutToTheLongestAllowed) {
  const RequestId id = machine.grow(ann, anns, mebibytes(18), Duration::max());
  machine.pass_in_steps(machine.broker.policy().max_wait - std::chrono::nanoseconds(1));
  EXPECT_EQ(machine.broker.next_deadline(), machine.now + std::chrono::nanoseconds(1));
  machine.pass(std::chrono::nanoseconds(1));
  EXPECT_EQ(machine.code(id), Code::kDeadlineExceeded);
}

TEST_F(BrokerWait, OfLessThanNothingIsNone) {
  EXPECT_TRUE(machine.is_answered(machine.grow(ann, anns, mebibytes(18), Duration::min())));
}

TEST_F(BrokerWait, NeverBefallsARequestWithinItsGuarantee) {
  const RequestId burst = machine.grow(bob, bobs, {1}, seconds(9));
  const RequestId burst_of_ann = machine.grow(ann, anns, mebibytes(18), seconds(9));
  EXPECT_TRUE(machine.is_granted(machine.grow(ann, machine.slice(ann), mebibytes(16))));
  EXPECT_FALSE(machine.is_answered(burst_of_ann));
  EXPECT_FALSE(machine.is_answered(burst));
}

TEST_F(BrokerWait, OnWhatTheTenantItselfHoldsNamesTheShortageInTheEnd) {
  machine.jobs_run_at_once = false;
  ASSERT_TRUE(machine.keep_but_give_back(bob, bobs, large));
  machine.run_jobs();
  ASSERT_EQ(machine.charges("bob")[Charge::kQuarantined], mebibytes(40));
  const RequestId id = machine.grow(bob, bobs, mebibytes(4), seconds(1));
  ASSERT_FALSE(machine.is_answered(id)) << "what is on its way back may help";
  machine.pass(seconds(1));
  EXPECT_EQ(machine.code(id), Code::kDeadlineExceeded);
  EXPECT_EQ(machine.denial(id).reason, Denial::Reason::kNoMemory);
}

}  // namespace
}  // namespace gpumem::core
