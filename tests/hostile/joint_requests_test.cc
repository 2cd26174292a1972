// As many requests for two devices at once as may wait of one user, while a quiet client calls.
// bench/beside_joint_requests.py judges how long its calls take.
#include "tests/hostile/clients/as_user.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

struct JointRequests : BrokerTest {
  static constexpr int kSessions = 32, kRequests = 64;  // of a session: as many as may wait
  static constexpr int kRounds = 400;

  JointRequests()
      : BrokerTest({.simulate = "2x256MiB",
                    .config = shared("[[tenant]]\nname = \"ann\"\nuser = 10001\nguarantee = \"64MiB\"\n")}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  /// Bob has what nobody is promised of both devices, so that the requests wait.
  std::unique_ptr<ClientProcess> holder() {
    auto bob = client_with(mebibytes(160), test_user(10'002));
    EXPECT_TRUE(succeeded(bob->open("b", {}, broker_.device(1).uuid())));
    EXPECT_TRUE(succeeded(bob->grow("b", mebibytes(160))));
    return bob;
  }
  /// A session of his whose requests wait for both.
  std::unique_ptr<FrameLane> waiter() {
    const AsUser user(10'002, BrokerProcess::kGroup);
    auto lane = std::make_unique<FrameLane>(broker_.folder());
    lane->greet();
    const std::uint64_t first = lane->open_slice();
    const auto second = lane->ask(lane::OpenSlice{1, 0, {}}).as<lane::SliceOpened>().slice;
    for (int i = 0; i < kRequests; ++i) {
      auto joint = lane->growth(first, mebibytes(2), std::chrono::hours(1));
      joint.parts[joint.count++] = {second, mebibytes(2).count, 0, 0};
      lane->send(joint);
      EXPECT_TRUE(lane->receive().is(lane::Kind::kWaiting));
    }
    return lane;
  }
  /// No more of his may wait, from whichever session.
  void expect_full() {
    const AsUser user(10'002, BrokerProcess::kGroup);
    FrameLane lane(broker_.folder());
    lane.greet();
    lane.send(lane.growth(lane.open_slice(), mebibytes(2), std::chrono::hours(1)));
    EXPECT_EQ(lane.receive().as<lane::Failed>().code, static_cast<std::uint64_t>(Code::kResourceExhausted));
  }
};

/// The time of a growth within what she is guaranteed, and its return.
std::chrono::microseconds grow_and_shrink(ClientProcess& ann, int rounds) {
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds && !testing::Test::HasFailure(); ++i) {
    EXPECT_TRUE(succeeded(ann.grow("a", mebibytes(4))));
    EXPECT_TRUE(succeeded(ann.shrink("a", {})));
  }
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - began) /
         rounds;
}

TEST_F(JointRequests, ByTheThousandsDoNotDelayAnothersCalls) {
  auto ann = client({}, test_user(10'001));
  auto bob = holder();
  RecordProperty("alone_us", std::to_string(grow_and_shrink(*ann, kRounds).count()));
  std::vector<std::unique_ptr<FrameLane>> waiters;
  for (int i = 0; i < kSessions; ++i) waiters.push_back(waiter());
  EXPECT_EQ(broker_.device(0).waiting(), kSessions * kRequests);
  EXPECT_EQ(broker_.device(1).waiting(), kSessions * kRequests);
  expect_full();
  RecordProperty("beside_us", std::to_string(grow_and_shrink(*ann, kRounds).count()));
  EXPECT_EQ(broker_.device(0).waiting(), kSessions * kRequests) << "she had her own memory";
  waiters.clear();
  expect_rest_after(*ann, *bob);
}

}  // namespace
}  // namespace gpumem::test
