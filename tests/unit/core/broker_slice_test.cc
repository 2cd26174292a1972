#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

using testing::HasSubstr;

constexpr Bytes kAll{~0ULL};

class BrokerSlice : public testing::Test {
 protected:
  static Policy policy() {
    Policy policy = small_policy();
    policy.tenants.push_back(user("cid", 3, {{{}, mebibytes(9)}}));
    policy.tenants.push_back(user("dan", 4, {{{}, {}}}));
    policy.max_slices_per_session = 3;
    return policy;
  }
  Result<Slice> open(Bytes limit, const std::string& device = "GPU-0") {
    return machine.broker.open_slice(ann, {device, limit, "weights"});
  }
  Code closed(SessionId session, SliceId slice) {
    const auto answer = machine.broker.close_slice(session, {slice}, machine.now);
    return answer ? Code{0} : answer.error().code;
  }
  Machine machine{policy()};
  SessionId ann = machine.connect(1);
};

TEST_F(BrokerSlice, HasTheLimitThatIsAskedForInWholePieces) {
  EXPECT_EQ(open(mebibytes(8))->limit, mebibytes(8));
  EXPECT_EQ(open({1})->limit, mebibytes(2));
  EXPECT_EQ(open(mebibytes(64))->limit, mebibytes(64));
}

TEST_F(BrokerSlice, WithoutALimitHasTheRoomOfThePool) {
  EXPECT_EQ(open({})->limit, mebibytes(64));
  const SessionId cid = machine.connect(3);
  EXPECT_EQ(machine.broker.open_slice(cid, {"GPU-0", {}, ""})->limit, mebibytes(64))
      << "its tenant's may change";
}

TEST_F(BrokerSlice, CannotBeLargerThanThePool) {
  for (const Bytes limit : {mebibytes(66), Bytes{mebibytes(64).count + 1}, Bytes{1ULL << 63}, kAll}) {
    EXPECT_EQ(open(limit).error().code, Code::kInvalidArgument);
  }
}

TEST_F(BrokerSlice, IsRefusedOnADeviceThatIsNotLent) {
  const auto answer = open(kPiece, "GPU-7");
  EXPECT_EQ(answer.error().code, Code::kNotFound);
  EXPECT_THAT(answer.error().message, AllOf(HasSubstr("GPU-7"), HasSubstr("GPU-0")));
  EXPECT_EQ(open(kPiece, "").error().code, Code::kNotFound);
}

TEST_F(BrokerSlice, IsRefusedToATenantThatMayHaveNothing) {
  const SessionId dan = machine.connect(4);
  EXPECT_EQ(machine.broker.open_slice(dan, {"GPU-0", {}, ""}).error().code, Code::kPermissionDenied);
}

TEST_F(BrokerSlice, IsRefusedPastTheMost) {
  const SliceId first = open(kPiece)->id;
  ASSERT_TRUE(open(kPiece));
  ASSERT_TRUE(open(kPiece));
  EXPECT_EQ(open(kPiece).error().code, Code::kResourceExhausted);
  EXPECT_EQ(closed(ann, first), Code{0});
  EXPECT_TRUE(open(kPiece));
}

TEST_F(BrokerSlice, BelongsToItsSessionOnly) {
  const SliceId slice = open(kPiece)->id;
  const SessionId other = machine.connect(1);
  EXPECT_EQ(closed(other, slice), Code::kNotFound);
  EXPECT_EQ(closed(ann, SliceId{99}), Code::kNotFound);
  EXPECT_EQ(closed(SessionId{99}, slice), Code::kUnauthenticated);
  EXPECT_EQ(machine.broker.open_slice(SessionId{}, {"GPU-0", {}, ""}).error().code, Code::kUnauthenticated);
  EXPECT_EQ(machine.code(machine.grow(other, slice, kPiece)), Code::kNotFound);
}

}  // namespace
}  // namespace gpumem::core
