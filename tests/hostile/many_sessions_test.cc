// One user with very many sessions, whose frames wait in as many sockets: turns are each user's, not each
// session's.
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/hostile/clients/as_user.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/frame_lane.h"

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

constexpr const char* kGuarantee = "[[tenant]]\nname = \"ann\"\nuser = 10001\nguarantee = \"64MiB\"\n";

struct Sessions : BrokerTest {
  explicit Sessions(const std::string& tenants = kGuarantee) : BrokerTest({.config = shared(tenants)}) {}
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
  /// Takes the answers that lie in the sockets of every so many lanes. Returns how many there were.
  static std::size_t answers(std::vector<FrameLane>& lanes, std::size_t first = 0, std::size_t step = 1) {
    std::size_t count = 0;
    for (std::size_t i = first; i < lanes.size(); i += step) {
      char packet[lane::kMostBytes];
      while (::recv(lanes[i].raw().socket(), packet, sizeof packet, MSG_DONTWAIT) > 0) ++count;
    }
    return count;
  }
};

struct ManySessions : Sessions, testing::WithParamInterface<Frame> {
  void send_one(FrameLane& lane, std::uint64_t slice) {
    switch (GetParam()) {
      case Frame::kDeniedGrowth: lane.send(lane.growth(slice, kPool)); return;
      case Frame::kCharge: lane.send(lane::Charge{0, mebibytes(1).count, 0}); return;
    }
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

/// 2,000 sessions of one user, each of which asks in vain once a second. The broker's processor time, and how
/// long another user's pings take, with a claim of that user waiting meanwhile or without.
struct LongDenials : Sessions {
  LongDenials() : Sessions(kLending) {}

  static constexpr std::size_t kAskers = 2000;
  static constexpr std::size_t kRounds = 100;  // of a second
  static constexpr std::size_t kSeconds = 10;

  std::chrono::duration<double> processor_time() const {
    clockid_t clock{};
    EXPECT_EQ(::clock_getcpuclockid(broker_.pid(), &clock), 0);
    timespec used{};
    EXPECT_EQ(::clock_gettime(clock, &used), 0);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }
  void ask_in_vain(const std::string& name, FrameLane& pinger) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> pings;
    const auto used = processor_time();
    const auto began = Clock::now();
    std::size_t denied = 0;
    for (std::size_t round = 0; round < kRounds * kSeconds; ++round) {
      const std::size_t first = round % kRounds;
      denied += answers(lanes_, first, kRounds);
      for (std::size_t i = first; i < kAskers; i += kRounds)
        lanes_[i].send(lanes_[i].growth(slices_[i], mebibytes(64)));
      const auto asked = Clock::now();
      EXPECT_TRUE(pinger.ask(lane::Ping{}).is(lane::Kind::kDone));
      pings.push_back(std::chrono::duration<double, std::micro>(Clock::now() - asked).count());
      std::this_thread::sleep_until(began + (round + 1) * std::chrono::seconds(1) / kRounds);
    }
    denied += answers(lanes_);
    const std::chrono::duration<double> took = Clock::now() - began;
    std::nth_element(pings.begin(), pings.begin() + pings.size() / 2, pings.end());
    RecordProperty(name + "_denials_a_second", std::to_string(static_cast<double>(denied) / took.count()));
    RecordProperty(name + "_core", std::to_string((processor_time() - used) / took));
    RecordProperty(name + "_ping_median_us", std::to_string(pings[pings.size() / 2]));
    EXPECT_GT(denied, 0u);
  }

  std::vector<FrameLane> lanes_;
  std::vector<std::uint64_t> slices_;
};

TEST_F(LongDenials, OfTwoThousandSessionsOnceASecond) {
  const auto holder = client_with(kPool - mebibytes(4), kCat);
  for (std::size_t i = 0; i < kAskers; ++i) {
    lanes_.push_back(session(10'002));
    slices_.push_back(lanes_.back().open_slice());
  }
  FrameLane pinger = session(10'001);
  ask_in_vain("idle", pinger);
  FrameLane waiter = session(10'001);
  waiter.send(waiter.growth(waiter.open_slice(), mebibytes(64), std::chrono::minutes(5)));
  await_waiters(1);
  ask_in_vain("claim", pinger);
}

INSTANTIATE_TEST_SUITE_P(Frames, ManySessions, testing::Values(Frame::kDeniedGrowth, Frame::kCharge),
                         name_of);

}  // namespace
}  // namespace gpumem::test
