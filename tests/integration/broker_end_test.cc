// The broker ends: what clients keep, what they are told, and what is left behind.
#include "proto/lane.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using std::chrono::minutes;

using BrokerEnd = BrokerTest;

TEST_F(BrokerEnd, ByATermSignalIsOrderlyAndLeavesNoSockets) {
  EXPECT_EQ(broker_.stop(), 0);
  EXPECT_FALSE(std::filesystem::exists(broker_.folder() + "/" + kLaneSocketName));
  EXPECT_FALSE(std::filesystem::exists(broker_.folder() + "/" + kApiSocketName));
  EXPECT_FALSE(std::filesystem::exists(broker_.driver_folder()))
      << "nobody used the simulated machine any more";
}

struct BrokerEndShared : BrokerTest {
  BrokerEndShared() : BrokerTest({.config = shared()}) {}
};

TEST_F(BrokerEndShared, AnswersWhoeverWaits) {
  GPUMEM_NEEDS_ROOT();
  auto holder = client_with(kPool, test_user(10'001));
  auto waiter = client({}, test_user(10'002));
  waiter->begin_to_grow("a", mebibytes(2), minutes(10));
  await_waiters(1);
  broker_.begin_to_stop();
  const Json answer = waiter->answer();
  EXPECT_TRUE(failed_with(answer, "UNAVAILABLE"));
  EXPECT_NE(answer["message"].get<std::string>().find("stopping"), std::string::npos) << answer;
  EXPECT_EQ(broker_.wait(), 0);
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

TEST_F(BrokerEnd, WithClientsIsFollowedByABrokerThatLendsWhatTheyDoNotHold) {
  auto one = client_with(mebibytes(48));
  EXPECT_TRUE(succeeded(one->write("a", 9)));
  broker_.kill();
  broker_.start_again();
  EXPECT_EQ(broker_.device().pool(), (kPool - mebibytes(48)).count);
  EXPECT_TRUE(succeeded(one->check("a", 9)));
  EXPECT_TRUE(eventually([&] {
    return failed_with(one->grow("a", mebibytes(64)), "UNAVAILABLE").operator bool();
  })) << "the session was the old broker's";
  EXPECT_TRUE(succeeded(one->disconnect()));
  EXPECT_TRUE(succeeded(one->connect()));
  EXPECT_TRUE(succeeded(one->open("a")));
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(64))));
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
