// The broker ends: what clients keep, what they are told, and what is left behind.
#include "proto/lane.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

// No next broker comes: clients are not to wait for it for long.
struct BrokerEnd : BrokerTest {
  BrokerEnd() { client_timeout_ = std::chrono::milliseconds(100); }
};

TEST_F(BrokerEnd, ByATermSignalIsOrderlyAndLeavesNoSockets) {
  EXPECT_EQ(broker_.stop(), 0);
  EXPECT_FALSE(std::filesystem::exists(broker_.folder() + "/" + kLaneSocketName));
  EXPECT_FALSE(std::filesystem::exists(broker_.folder() + "/" + kApiSocketName));
  EXPECT_FALSE(std::filesystem::exists(broker_.driver_folder()))
      << "nobody used the simulated machine any more";
}

TEST_F(BrokerEnd, LeavesClientsTheirMemory) {
  auto one = client_with(mebibytes(48));
  EXPECT_TRUE(succeeded(one->write("a", 1)));
  EXPECT_EQ(broker_.stop(), 0);
  EXPECT_TRUE(succeeded(one->check("a", 1)));
  EXPECT_TRUE(succeeded(one->write("a", 2)));
  EXPECT_TRUE(succeeded(one->check("a", 2)));
  EXPECT_TRUE(failed_with(one->grow("a", mebibytes(64)), "UNAVAILABLE"));
  EXPECT_TRUE(failed_with(one->ask({{"do", "ping"}}), "UNAVAILABLE"));
  EXPECT_TRUE(succeeded(one->check("a", 2))) << "a failed growth changes nothing";
}

TEST_F(BrokerEnd, ByAKillLeavesClientsTheirMemory) {
  auto one = client_with(mebibytes(48));
  EXPECT_TRUE(succeeded(one->write("a", 1)));
  broker_.kill();
  EXPECT_TRUE(succeeded(one->check("a", 1)));
  EXPECT_TRUE(failed_with(one->grow("a", mebibytes(64)), "UNAVAILABLE"));
}

TEST_F(BrokerEnd, LetsSlicesAndSessionsGoInGoodOrder) {
  auto one = client_with(mebibytes(48));
  broker_.kill();
  EXPECT_TRUE(failed_with(one->shrink("a", {}), "UNAVAILABLE"));
  EXPECT_TRUE(succeeded(one->close("a")));
  EXPECT_TRUE(succeeded(one->disconnect()));
  const Json answer = one->connect();
  EXPECT_TRUE(failed_with(answer, "UNAVAILABLE"));
  EXPECT_NE(answer["message"].get<std::string>().find("no broker"), std::string::npos) << answer;
  EXPECT_EQ(one->leave(), 0);
}

TEST_F(BrokerEnd, ByAKillIsMendedByTheNextBroker) {
  broker_.kill();
  EXPECT_TRUE(std::filesystem::exists(broker_.folder() + "/" + kLaneSocketName)) << "left over";
  broker_.start_again();
  auto one = client_with(kPool);
  EXPECT_TRUE(succeeded(one->check("a", 0)));
}

TEST_F(BrokerEnd, IsOrderlyWhateverClientsAreDoing) {
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<ClientProcess>> storms;
    for (int i = 0; i < 3; ++i) {
      storms.push_back(std::make_unique<ClientProcess>(
          broker_.folder(), ClientOptions{.arguments = {"storm", std::to_string(3 * round + i)}}));
    }
    EXPECT_TRUE(eventually([&] { return broker_.device().free() < kPool.count; })) << "they are at it";
    EXPECT_EQ(broker_.stop(), 0);
    for (auto& storm : storms) EXPECT_EQ(storm->child().wait(), 3) << "the broker is gone";
    broker_.start_again();
  }
  expect_rest();
}

TEST_F(BrokerEnd, ReportsNewRequestsAsUnavailableWhileItStops) {
  auto one = client_with(mebibytes(4));
  EXPECT_EQ(broker_.stop(), 0);
  ClientProcess late(broker_.folder());
  EXPECT_TRUE(failed_with(late.connect(), "UNAVAILABLE"));
  EXPECT_TRUE(failed_with(one->open("b"), "UNAVAILABLE"));
}

}  // namespace
}  // namespace gpumem::test
