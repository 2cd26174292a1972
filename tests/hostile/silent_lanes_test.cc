// Lanes that take up places: administrators always get in, and whoever greets is heard.
#include "tests/hostile/clients/as_user.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

// A broker with few descriptors, so few may be silent: 64 of 512, and 32 of one user.
struct SilentLanes : BrokerTest {
  SilentLanes()
      : BrokerTest(::geteuid() != 0
                       ? BrokerOptions{.config = kSomeSpare}
                       : BrokerOptions{.config = kShared, .user = test_user(10'001), .open_files = 512}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(SilentLanes, CostTheirOwnUserTheOldestOfThem) {
  std::vector<FrameLane> lanes;
  {
    const AsUser user(10'002, BrokerProcess::kGroup);
    for (int i = 0; i < 400; ++i) lanes.emplace_back(broker_.folder());
  }
  EXPECT_TRUE(lanes.front().raw().is_closed_by_broker());
  EXPECT_TRUE(lanes.back().is_welcomed()) << "the youngest has its place";
  auto same_user = client_with(mebibytes(4), test_user(10'002));
  auto other = client_with(mebibytes(4), test_user(10'003));
  expect_to_leave(*same_user, *other);
  EXPECT_TRUE(eventually([&] { return broker_.log().find("have said nothing") != std::string::npos; }));
}

TEST_F(SilentLanes, OfManyUsersDoNotKeepAnybodyOut) {
  std::vector<FrameLane> lanes;
  for (uid_t uid = 10'010; uid < 10'030; ++uid) {
    const AsUser user(uid, BrokerProcess::kGroup);
    for (int i = 0; i < 20; ++i) lanes.emplace_back(broker_.folder());
  }
  auto other = client_with(mebibytes(4), test_user(10'003));
  EXPECT_EQ(other->leave(), 0);
  EXPECT_TRUE(FrameLane(broker_.folder()).is_welcomed()) << "an administrator";
}

// Sessions are not silent: the kernel's limit alone stops them, short of what is kept.
TEST_F(SilentLanes, EndlessNewSessionsLeaveDescriptorsForExistingOnes) {
  auto normal = client_with(mebibytes(16), test_user(10'003));
  std::vector<FrameLane> lanes;
  int refused = 0;
  {
    const AsUser user(10'002, BrokerProcess::kGroup);
    for (int i = 0; i < 300; ++i) {
      lanes.emplace_back(broker_.folder());
      if (!lanes.back().is_welcomed()) ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(eventually([&] { return broker_.log().find("LimitNOFILE") != std::string::npos; }));
  EXPECT_TRUE(succeeded(normal->grow("a", mebibytes(32))));
  EXPECT_TRUE(FrameLane(broker_.folder()).is_welcomed()) << "an administrator";
  EXPECT_TRUE(cli::Monitor::connect(broker_.folder())->status());
  lanes.clear();
  EXPECT_EQ(normal->leave(), 0);
}

}  // namespace
}  // namespace gpumem::test
