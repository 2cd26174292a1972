// One user with very many sessions, whose frames wait in as many sockets: turns are each user's, not each
// session's.
#include <sys/resource.h>
#include <sys/socket.h>

#include "tests/hostile/as_user.h"
#include "tests/integration/fixture.h"
#include "tests/support/frame_lane.h"

namespace gpumem::test {
namespace {

constexpr std::size_t kSessions = 1500;
constexpr std::size_t kFrames = 60;  // of each session

enum class Frame { kDeniedGrowth, kCharge };

std::string name_of(const testing::TestParamInfo<Frame>& info) {
  switch (info.param) {
    case Frame::kDeniedGrowth: return "DeniedGrowths";
    case Frame::kCharge: return "Charges";
  }
  return "";
}

struct ManySessions : BrokerTest, testing::WithParamInterface<Frame> {
  ManySessions()
      : BrokerTest({.config = shared("[[tenant]]\nname = \"ann\"\nuser = 10001\nguarantee = \"64MiB\"\n")}) {}
  void SetUp() override {
    GPUMEM_NEEDS_ROOT();
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, 8192);
    limit.rlim_max = std::max(limit.rlim_max, limit.rlim_cur);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  FrameLane session(uid_t uid) {
    const AsUser user(uid, BrokerProcess::kGroup);
    FrameLane lane(broker_.folder());
    lane.greet();
    lane.descriptors().clear();
    return lane;
  }
  void send_one(FrameLane& lane, std::uint64_t slice) {
    switch (GetParam()) {
      case Frame::kDeniedGrowth: lane.send(lane.growth(slice, kPool)); return;
      case Frame::kCharge: lane.send(lane::Charge{0, mebibytes(1).count}); return;
    }
  }
  /// Takes the answers that lie in the sockets. Returns how many there were.
  static std::size_t answers(std::vector<FrameLane>& lanes) {
    std::size_t count = 0;
    for (FrameLane& lane : lanes) {
      char packet[lane::kMostBytes];
      while (::recv(lane.raw().socket(), packet, sizeof packet, MSG_DONTWAIT) > 0) ++count;
    }
    return count;
  }
};

// By the order of events: the time in which half of the frames are answered is a slow machine's margin.
TEST_P(ManySessions, DelayAnotherUserByNoMoreThanTheirUsersTurns) {
  std::vector<FrameLane> lanes;
  std::vector<std::uint64_t> slices;
  for (std::size_t i = 0; i < kSessions; ++i) {
    lanes.push_back(session(10'002));
    slices.push_back(lanes.back().open_slice());
  }
  for (std::size_t i = 0; i < kSessions; ++i)
    for (std::size_t frame = 0; frame < kFrames; ++frame) send_one(lanes[i], slices[i]);
  const std::size_t before = answers(lanes);
  FrameLane ann = session(10'001);
  EXPECT_TRUE(ann.grow(ann.open_slice(), mebibytes(64)).is(lane::Kind::kGranted));
  EXPECT_LT(answers(lanes), kSessions * kFrames / 2) << before << " before";
}

INSTANTIATE_TEST_SUITE_P(Frames, ManySessions, testing::Values(Frame::kDeniedGrowth, Frame::kCharge),
                         name_of);

}  // namespace
}  // namespace gpumem::test
