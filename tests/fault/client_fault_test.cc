// A client's driver calls fail: it is told, its memory goes back, and it can go on.
#include "tests/fault/fault_fixture.h"

namespace gpumem::test {
namespace {

using FailingCall = std::pair<std::string, int>;  ///< which of the calls of one growth

struct ClientsDriver : FaultTest, testing::WithParamInterface<FailingCall> {};

TEST_P(ClientsDriver, FailureWhileGrowingIsReportedAndTheLeasesGoBack) {
  auto one = client_with(mebibytes(8));
  EXPECT_TRUE(succeeded(one->write("a", 7)));
  const auto [call, nth] = GetParam();
  inject(std::string(call) + " fail INVALID_VALUE nth " + std::to_string(nth), one->pid());
  const Json failed = one->grow("a", mebibytes(8 + 42));
  EXPECT_TRUE(failed_with(failed, "INTERNAL")) << "the client gave nothing wrong: " << failed;
  EXPECT_NE(failed["message"].get<std::string>().find(call), std::string::npos) << failed;
  heal();
  EXPECT_TRUE(eventually([this] { return broker_.device().free() == (kPool - mebibytes(8)).count; }))
      << broker_.unrest();
  EXPECT_TRUE(succeeded(one->check("a", 7)));
  EXPECT_TRUE(succeeded(one->grow("a", kPool, std::chrono::seconds(60))));
  EXPECT_EQ(one->shrink("a", {})["committed"], 0);
  EXPECT_TRUE(eventually([this] { return broker_.device().free() == kPool.count; })) << broker_.unrest();
  expect_rest_after(*one);
}

INSTANTIATE_TEST_SUITE_P(Calls, ClientsDriver,
                         testing::Values(FailingCall{"cuMemImportFromShareableHandle", 1},
                                         FailingCall{"cuMemImportFromShareableHandle", 3},
                                         FailingCall{"cuMemMap", 1}, FailingCall{"cuMemMap", 3},
                                         FailingCall{"cuMemSetAccess", 1}),
                         [](const auto& info) {
                           return info.param.first + std::to_string(info.param.second);
                         });

using ClientsAddresses = FaultTest;

TEST_F(ClientsAddresses, ThatCannotBeReservedLeaveNoSlice) {
  ClientProcess one(broker_.folder());
  EXPECT_TRUE(succeeded(one.connect()));
  inject("cuMemAddressReserve fail OUT_OF_MEMORY", one.pid());
  const Json failed = one.open("a");
  EXPECT_FALSE(failed["ok"].get<bool>());
  EXPECT_NE(failed["message"].get<std::string>().find("cuMemAddressReserve"), std::string::npos) << failed;
  EXPECT_EQ(broker_.sessions().at(0).slices_size(), 0);
  heal();
  EXPECT_TRUE(succeeded(one.open("a")));
  EXPECT_TRUE(succeeded(one.grow("a", kPool)));
  EXPECT_EQ(one.leave(), 0);
  expect_rest();
}

TEST_F(ClientsAddresses, DriverThatDoesNotStartIsReported) {
  ClientProcess one(broker_.folder());
  inject("cuInit fail SYSTEM_DRIVER_MISMATCH", one.pid());
  Json failed = one.connect();
  if (failed["ok"].get<bool>()) failed = one.open("a");
  EXPECT_FALSE(failed["ok"].get<bool>());
  EXPECT_NE(failed["message"].get<std::string>().find("SYSTEM_DRIVER_MISMATCH"), std::string::npos) << failed;
  heal();
  one.kill();
  expect_rest();
}

struct KeptMemory : FaultTest, testing::WithParamInterface<std::string> {};

TEST_P(KeptMemory, StaysChargedUntilItIsUnmappedOrItsProcessEnds) {
  auto one = client_with(mebibytes(32)), two = client_with(mebibytes(32));
  inject(GetParam(), one->pid());
  inject(GetParam(), two->pid());
  for (auto* client : {one.get(), two.get()}) {
    const Json kept = client->shrink("a", {});
    EXPECT_FALSE(kept["ok"].get<bool>()) << kept;
    EXPECT_NE(kept["message"].get<std::string>().find("could not be unmapped"), std::string::npos) << kept;
    EXPECT_TRUE(succeeded(client->ask({{"do", "ping"}})));
  }
  EXPECT_EQ(broker_.device().active(), mebibytes(64).count) << broker_.device().DebugString();
  heal();
  EXPECT_EQ(one->shrink("a", {})["committed"], 0);
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(16))));
  one->kill();
  two->kill();
  expect_rest();
}

/// The second is what a process sees once its context is broken, by an illegal address for example.
INSTANTIATE_TEST_SUITE_P(Calls, KeptMemory,
                         testing::Values(std::string("cuMemUnmap fail UNKNOWN"),
                                         std::string("cu* fail ILLEGAL_ADDRESS")),
                         [](const auto& info) { return info.index == 0 ? "cuMemUnmap" : "All"; });

using BrokenContext = FaultTest;

TEST_F(BrokenContext, ProcessCanStillLeaveInGoodOrder) {
  auto one = client_with(mebibytes(32));
  inject("cu* fail ILLEGAL_ADDRESS", one->pid());
  EXPECT_FALSE(one->grow("a", mebibytes(64))["ok"].get<bool>());
  EXPECT_TRUE(succeeded(one->disconnect()));
  EXPECT_EQ(one->leave(), 0);
  heal();
  expect_rest();
  expect_whole_pool_lendable();
}

}  // namespace
}  // namespace gpumem::test
