// The broker's own driver calls fail or hang: no memory is lost, and who needs none of it does not notice.
#include <cctype>
#include <csignal>

#include "tests/fault/fault_fixture.h"

namespace gpumem::test {
namespace {

struct BrokersDriver : FaultTest, testing::WithParamInterface<const char*> {
  /// Lets a client borrow and give back, so that the broker must create memory anew.
  void borrow_and_return(Bytes bytes) {
    auto one = client_with(bytes);
    EXPECT_EQ(one->shrink("a", {})["committed"], 0);
    EXPECT_EQ(one->leave(), 0);
  }
};

TEST_P(BrokersDriver, FailureOfOneCallIsMadeUpForByTrying) {
  inject_into_broker(std::string(GetParam()) + " nth 2");
  borrow_and_return(mebibytes(80));
  EXPECT_TRUE(eventually([this] { return broker_.at_rest(); })) << broker_.unrest();
  heal();
  expect_rest();
  expect_whole_pool_lendable();
}

TEST_P(BrokersDriver, LongFailureKeepsTheMemoryChargedUntilItEnds) {
  inject_into_broker(GetParam());
  auto one = client_with(mebibytes(80));
  EXPECT_EQ(one->shrink("a", {})["committed"], 0);
  EXPECT_TRUE(eventually([this] { return broker_.device().quarantined() == mebibytes(80).count; }));
  auto two = client();
  const Json refused = two->grow("a", kPool);
  EXPECT_TRUE(failed_with(refused, "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(refused.contains("denial")) << refused;
  EXPECT_TRUE(succeeded(two->ask({{"do", "ping"}})));
  heal();
  EXPECT_TRUE(eventually([this] { return broker_.device().quarantined() == 0; }));
  one.reset();
  two.reset();
  expect_rest();
  expect_whole_pool_lendable();
}

TEST_P(BrokersDriver, FailuresAtRandomLoseNothing) {
  inject_into_broker(std::string(GetParam()) + " probability 0.3 seed 5");
  for (int round = 0; round < 8; ++round) {
    auto one = client();
    auto two = client();
    // Earlier failures decide how much memory there is. The broker stays up and gives the reason for a
    // refusal.
    for (auto* client : {one.get(), two.get()}) {
      const Json grown = client->grow("a", mebibytes(24U * static_cast<unsigned>(round + 1) / 2));
      EXPECT_TRUE(grown["ok"].get<bool>() || grown.contains("denial")) << grown;
    }
  }
  heal();
  EXPECT_TRUE(eventually([this] { return broker_.at_rest(); })) << broker_.unrest();
  expect_whole_pool_lendable();
}

INSTANTIATE_TEST_SUITE_P(Calls, BrokersDriver,
                         testing::Values("cuMemCreate fail OUT_OF_MEMORY", "cuMemCreate fail UNKNOWN",
                                         "cuMemExportToShareableHandle fail UNKNOWN"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

using SlowDriver = FaultTest;

TEST_F(SlowDriver, DelaysNoRequestThatNeedsNoMemoryOfIt) {
  auto one = client_with(mebibytes(32));
  auto two = client();
  inject_into_broker("cuMemCreate delay 2s nth 1");
  EXPECT_EQ(one->shrink("a", {})["committed"], 0);
  EXPECT_TRUE(eventually([this] { return hits() == 1; }));
  for (int i = 1; i <= 4; ++i) {
    EXPECT_TRUE(succeeded(two->ask({{"do", "ping"}})));
    EXPECT_TRUE(succeeded(two->grow("a", mebibytes(2U * static_cast<unsigned>(i)))));
  }
  EXPECT_NE(broker_.device().free() + mebibytes(8).count, broker_.device().pool())
      << "the call is still waiting";
  expect_to_leave(*one, *two);
  heal();
  expect_rest();
}

using KilledBroker = FaultTest;

TEST_F(KilledBroker, AtACallOfTheDriverIsFollowedByOneThatLendsEverything) {
  auto one = client_with(mebibytes(32));
  auto two = client_with(mebibytes(8));
  EXPECT_TRUE(succeeded(two->write("a", 3)));
  inject_into_broker("cuMemCreate kill nth 1");
  static_cast<void>(one->shrink("a", {}));
  EXPECT_EQ(broker_.wait(), -SIGKILL);
  EXPECT_TRUE(succeeded(two->check("a", 3))) << "memory outlives the broker";
  heal();
  one->kill();
  two->kill();
  broker_.start_again();
  expect_rest();
  expect_whole_pool_lendable();
}

using StartedBroker = FaultTest;

TEST_F(StartedBroker, WhoseDriverGivesNothingServesAndHasItsPoolLater) {
  broker_.kill();
  const auto added = sim::add_fault(machine(), "cuMemCreate fail OUT_OF_MEMORY");
  ASSERT_TRUE(added.has_value()) << added.error().message;
  broker_.start_again();
  EXPECT_EQ(broker_.device().missing(), kPool.count);
  const Json refused = client()->grow("a", mebibytes(2));
  EXPECT_TRUE(failed_with(refused, "RESOURCE_EXHAUSTED"));
  heal();
  EXPECT_TRUE(eventually([this] { return broker_.at_rest(); })) << broker_.unrest();
  expect_whole_pool_lendable();
}

using BrokersNvml = FaultTest;

TEST_F(BrokersNvml, ThatTellsNothingAtStartIsDoneWithout) {
  broker_.kill();
  for (const char* rule :
       {"nvmlDeviceGetMemoryInfo fail GPU_IS_LOST", "nvmlSystemGetDriverVersion fail UNKNOWN"}) {
    const auto added = sim::add_fault(machine(), rule);
    ASSERT_TRUE(added.has_value()) << added.error().message;
  }
  broker_.start_again();
  EXPECT_TRUE(eventually(
      [&] { return broker_.log().find("assuming that nobody else uses it") != std::string::npos; }));
  heal();
  expect_rest();
  expect_whole_pool_lendable();
}

TEST_F(BrokersNvml, ThatDoesNotStartIsDoneWithout) {
  broker_.kill();
  const auto added = sim::add_fault(machine(), "nvmlInit fail DRIVER_NOT_LOADED");
  ASSERT_TRUE(added.has_value()) << added.error().message;
  broker_.start_again();
  EXPECT_TRUE(eventually([&] { return broker_.log().find("no management library") != std::string::npos; }));
  heal();
  expect_rest();
}

struct BrokersFabricHandles : FaultTest {
  BrokersFabricHandles()
      : FaultTest(
            {.simulate = "1x256MiB+fabric", .config = std::string(kSomeSpare) + "fabric_handles = true\n"}) {}
};

TEST_F(BrokersFabricHandles, ThatItMayNotMakeAtStartAreLeftOut) {
  broker_.kill();
  const auto added = sim::add_fault(machine(), "cuMemCreate fail NOT_PERMITTED nth 1");
  ASSERT_TRUE(added.has_value()) << added.error().message;
  broker_.start_again();
  const std::string log = broker_.log();
  EXPECT_NE(log.find("is lent without fabric handles: "), std::string::npos);
  EXPECT_NE(log.find("/dev/nvidia-caps-imex-channels"), std::string::npos) << "what is needed";
  heal();
  expect_rest();
  expect_whole_pool_lendable();
}

TEST_F(BrokersFabricHandles, ThatTheDriverRefusesLaterCostThePoolNothing) {
  for (const char* rule :
       {"cuMemCreate fail NOT_PERMITTED nth 1", "cuMemExportToShareableHandle fail NOT_PERMITTED nth 2"}) {
    inject_into_broker(rule);
    auto one = client_with(mebibytes(2));
    EXPECT_EQ(one->shrink("a", {})["committed"], 0);
    EXPECT_EQ(one->leave(), 0);
    EXPECT_TRUE(eventually([this] { return broker_.at_rest(); })) << broker_.unrest();
    heal();
  }
  expect_rest();
  expect_whole_pool_lendable();
}

}  // namespace
}  // namespace gpumem::test
