#include "tests/unit/core/machine.h"

// Growths on several devices, all or nothing.

namespace gpumem::core {
namespace {

using std::chrono::seconds;

// The second device counts in pieces of another size.
class BrokerJoint : public testing::Test {
 protected:
  static constexpr Bytes kOtherPiece = mebibytes(4);
  static Policy policy() {
    Policy policy;
    policy.devices = {device("GPU-0", mebibytes(64)), device("GPU-1", mebibytes(64))};
    policy.devices[1].granularity = kOtherPiece;
    const std::vector<Quota> all(2, Quota{{}, mebibytes(64)});
    policy.tenants = {user("ann", 1, all), user("bob", 2, all)};
    return policy;
  }
  RequestId grow(Bytes one, Bytes two, Duration wait = {}) {
    return machine.grow(ann, {{first, one}, {second, two}}, wait);
  }
  std::map<DeviceIndex, Bytes> granted(RequestId id) {
    std::map<DeviceIndex, Bytes> sums;
    for (const OfferedLease& lease : machine.answers.at(id)->leases) {
      EXPECT_EQ(lease.slice, lease.device == 0 ? first : second);
      sums[lease.device] += lease.extent.size;
    }
    return sums;
  }
  void expect_nothing_charged() {
    for (const DeviceView& view : machine.broker.devices()) EXPECT_EQ(view.charges.total(), Bytes{});
  }
  using Sums = std::map<DeviceIndex, Bytes>;

  Machine machine{policy()};
  SessionId ann = machine.connect(1);
  SliceId first = machine.slice(ann, {}, "GPU-0");
  SliceId second = machine.slice(ann, {}, "GPU-1");
  SessionId bob = machine.connect(2);
};

TEST_F(BrokerJoint, IsOneGrantOfAllDevices) {
  const RequestId id = grow(mebibytes(6), mebibytes(6));
  ASSERT_TRUE(machine.is_granted(id));
  EXPECT_EQ(granted(id), (Sums{{0, mebibytes(6)}, {1, mebibytes(8)}})) << "each in its own pieces";
  EXPECT_TRUE(machine.broker.accept(ann, machine.answers.at(id)->id));
  EXPECT_EQ(machine.charges("ann", 1)[Charge::kActive], mebibytes(8));
}

TEST_F(BrokerJoint, IsRefusedWhereOnePartCanNeverBe) {
  const RequestId id = grow(kPiece, mebibytes(68), seconds(9));
  ASSERT_TRUE(machine.is_answered(id));
  EXPECT_EQ(machine.denial(id).device, "GPU-1");
  expect_nothing_charged();
}

TEST_F(BrokerJoint, IsRefusedOnceThoughItIsOverdueOnBothDevices) {
  Policy denying = policy();
  for (DevicePolicy& device : denying.devices) {
    device.reclaim.lend_guarantees = true;
    device.reclaim.escalation = Escalation::kDeny;
  }
  denying.tenants[0].quotas.assign(2, {mebibytes(64), mebibytes(64)});
  ASSERT_TRUE(machine.broker.apply(denying, machine.now));
  for (const char* device : {"GPU-0", "GPU-1"})
    machine.get(bob, machine.slice(bob, {}, device), mebibytes(64));
  const RequestId id = grow(mebibytes(8), mebibytes(8), std::chrono::minutes(60));
  machine.pass_in_steps(2 * denying.devices[0].reclaim.deadline);
  EXPECT_EQ(machine.code(id), Code::kDeadlineExceeded);
}

TEST_F(BrokerJoint, RefusesPartsThatAreNoRequest) {
  const SliceId again = machine.slice(ann, {}, "GPU-0");
  EXPECT_EQ(machine.code(machine.grow(ann, {{first, kPiece}, {again, kPiece}})), Code::kInvalidArgument);
  EXPECT_EQ(machine.code(machine.grow(ann, {{first, kPiece}, {second, {}}})), Code::kInvalidArgument);
  EXPECT_EQ(machine.code(machine.grow(ann, {{first, kPiece}, {SliceId{99}, kPiece}})), Code::kNotFound);
  EXPECT_EQ(machine.code(machine.grow(ann, {{first, kPiece, mebibytes(4)}})), Code::kInvalidArgument);
  EXPECT_EQ(machine.code(machine.grow(ann, std::vector<GrowthPart>{})), Code::kInvalidArgument);
  expect_nothing_charged();
}

TEST_F(BrokerJoint, HoldsNothingWhileItWaits) {
  const SliceId bobs = machine.slice(bob, {}, "GPU-1");
  const Grant all = machine.get(bob, bobs, mebibytes(64));
  const RequestId id = grow(mebibytes(60), mebibytes(60), seconds(9));
  EXPECT_EQ(machine.charged("ann", 0), Bytes{});
  EXPECT_TRUE(machine.is_granted(machine.grow(bob, machine.slice(bob), kPiece)))
      << "nobody's memory meanwhile";
  ASSERT_TRUE(machine.give_back(bob, bobs, all));
  EXPECT_TRUE(machine.is_granted(id));
}

TEST_F(BrokerJoint, ThatTheDriverDoesNotGiveOnOneDeviceChargesNothingOnTheOther) {
  machine.jobs_run_at_once = false;
  machine.driver.fails = [](const Extent&) { return true; };
  machine.get(bob, machine.slice(bob, {}, "GPU-0"), mebibytes(40));
  machine.get(bob, machine.slice(bob, {}, "GPU-0"), mebibytes(6));
  const RequestId id = grow(Machine::kGrowthWithJob, mebibytes(8));
  ASSERT_FALSE(machine.is_answered(id)) << "needs a job on one device";
  EXPECT_EQ(machine.charged("ann", 1), mebibytes(8));
  machine.run_jobs();
  EXPECT_EQ(machine.code(id), Code::kUnavailable);
  EXPECT_EQ(machine.charged("ann", 0), Bytes{});
  EXPECT_EQ(machine.charged("ann", 1), Bytes{});
  machine.driver.fails = nullptr;
  machine.jobs_run_at_once = true;
  machine.pass_in_steps(seconds(10));
  EXPECT_TRUE(machine.is_granted(grow(mebibytes(18), mebibytes(64))));
}

TEST_F(BrokerJoint, RunsOutOfTimeOnAllDevicesAtOnce) {
  machine.get(bob, machine.slice(bob, {}, "GPU-1"), mebibytes(64));
  const RequestId id = grow(mebibytes(8), mebibytes(40), seconds(2));
  EXPECT_EQ(machine.broker.devices()[0].waiting + machine.broker.devices()[1].waiting, 2u);
  machine.pass_in_steps(seconds(2));
  EXPECT_EQ(machine.code(id), Code::kDeadlineExceeded);
  EXPECT_EQ(machine.denial(id).device, "GPU-1");
  EXPECT_EQ(machine.broker.devices()[0].waiting + machine.broker.devices()[1].waiting, 0u);
}

TEST_F(BrokerJoint, HasBorrowersAskedWhereItLacksMemory) {
  machine.cooperative = true;
  const SliceId bobs = machine.slice(bob, {}, "GPU-1");
  for (int i = 0; i < 8; ++i) machine.get(bob, bobs, mebibytes(8));
  const RequestId id = grow(mebibytes(8), mebibytes(16), seconds(9));
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  EXPECT_EQ(machine.charged("bob", 1), mebibytes(48));
}

}  // namespace
}  // namespace gpumem::core
