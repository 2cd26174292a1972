// Lanes that take up places: administrators always get in, and whoever greets is heard.
#include "tests/hostile/as_user.h"
#include "tests/integration/fixture.h"
#include "tests/support/raw_lane.h"

namespace gpumem::test {
namespace {

constexpr int kUsers = 10, kEach = 40;

struct ControlConnections : BrokerTest {
  ControlConnections() : BrokerTest({.config = shared()}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

v1::ToBroker control_hello() {
  v1::ToBroker message = hello("");
  message.mutable_hello()->set_control(true);
  return message;
}

TEST_F(ControlConnections, OfManyUsersDoNotLockTheAdministratorOut) {
  std::vector<RawLane> lanes;
  int refused = 0;
  for (uid_t uid = 10'000; uid < 10'000 + kUsers; ++uid) {
    const AsUser user(uid, BrokerProcess::kGroup);
    for (int i = 0; i < kEach; ++i) {
      lanes.emplace_back(broker_.folder());
      EXPECT_TRUE(lanes.back().send(control_hello()));
      if (lanes.back().receive().has_refused()) ++refused;
    }
  }
  EXPECT_EQ(refused, kUsers * kEach - 256);
  RawLane admin(broker_.folder());
  EXPECT_NE(admin.greet_control(), "");
}

// A broker with few descriptors, so few may be silent: 64 of 512, and 32 of one user.
struct SilentLanes : BrokerTest {
  SilentLanes()
      : BrokerTest(::geteuid() != 0
                       ? BrokerOptions{.config = kSomeSpare}
                       : BrokerOptions{.config = kShared, .user = test_user(10'001), .open_files = 512}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(SilentLanes, CostTheirOwnUserTheOldestOfThem) {
  std::vector<RawLane> lanes;
  {
    const AsUser user(10'002, BrokerProcess::kGroup);
    for (int i = 0; i < 400; ++i) lanes.emplace_back(broker_.folder());
  }
  EXPECT_TRUE(lanes.front().is_closed_by_broker());
  EXPECT_TRUE(lanes.back().send(hello()));
  EXPECT_TRUE(lanes.back().receive().has_welcome()) << "the youngest has its place";
  auto same_user = client_with(mebibytes(4), test_user(10'002));
  auto other = client_with(mebibytes(4), test_user(10'003));
  EXPECT_EQ(same_user->leave(), 0);
  EXPECT_EQ(other->leave(), 0);
  EXPECT_TRUE(eventually([&] { return broker_.log().find("have said nothing") != std::string::npos; }));
}

TEST_F(SilentLanes, OfManyUsersDoNotKeepAnybodyOut) {
  std::vector<RawLane> lanes;
  for (uid_t uid = 10'010; uid < 10'030; ++uid) {
    const AsUser user(uid, BrokerProcess::kGroup);
    for (int i = 0; i < 20; ++i) lanes.emplace_back(broker_.folder());
  }
  auto other = client_with(mebibytes(4), test_user(10'003));
  EXPECT_EQ(other->leave(), 0);
  RawLane admin(broker_.folder());
  EXPECT_NE(admin.greet_control(), "");
}

// Sessions are not silent: the kernel's limit alone stops them, short of what is kept.
TEST_F(SilentLanes, EndlessNewSessionsLeaveDescriptorsForExistingOnes) {
  auto normal = client_with(mebibytes(16), test_user(10'003));
  std::vector<RawLane> lanes;
  int refused = 0;
  {
    const AsUser user(10'002, BrokerProcess::kGroup);
    for (int i = 0; i < 300; ++i) {
      lanes.emplace_back(broker_.folder());
      if (!lanes.back().send(hello()) || !lanes.back().receive().has_welcome()) ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(eventually([&] { return broker_.log().find("LimitNOFILE") != std::string::npos; }));
  EXPECT_TRUE(succeeded(normal->grow("a", mebibytes(32))));
  RawLane admin(broker_.folder());
  EXPECT_NE(admin.greet_control(), "");
  EXPECT_TRUE(cli::Monitor::connect(broker_.folder())->status());
  lanes.clear();
  EXPECT_EQ(normal->leave(), 0);
}

}  // namespace
}  // namespace gpumem::test
