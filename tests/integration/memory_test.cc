// Promises to a single client: memory of its own, zeroed, within limits, and gone when given back.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using Memory = BrokerTest;

TEST_F(Memory, IsLentReadWrittenAndGivenBack) {
  auto one = client_with(mebibytes(48));
  EXPECT_TRUE(succeeded(one->check("a", 0)));
  EXPECT_TRUE(succeeded(one->write("a", 0x5a)));
  EXPECT_TRUE(succeeded(one->check("a", 0x5a)));
  EXPECT_EQ(broker_.device().active(), mebibytes(48).count);
  EXPECT_EQ(one->shrink("a", {})["committed"], 0);
  EXPECT_TRUE(eventually([&] { return broker_.device().free() == kPool.count; }));
  EXPECT_TRUE(succeeded(one->disconnect()));
  expect_rest();
}

TEST_F(Memory, ReadsAsZeroAfterAShrinkAndARegrowth) {
  auto one = client_with(mebibytes(64));
  for (int round = 1; round <= 4; ++round) {
    EXPECT_TRUE(succeeded(one->write("a", round)));
    EXPECT_EQ(one->shrink("a", {})["committed"], 0);
    EXPECT_TRUE(succeeded(one->grow("a", kPool, std::chrono::seconds(60))));
    EXPECT_TRUE(succeeded(one->check("a", 0)));
  }
}

TEST_F(Memory, OfAnotherProcessIsNeverRead) {
  auto first = client_with(kPool);
  EXPECT_TRUE(succeeded(first->write("a", 0xab)));
  kill_and_reclaim(*first);
  auto second = client_with(kPool);
  EXPECT_TRUE(succeeded(second->check("a", 0)));
}

TEST_F(Memory, KeepsItsContentWhileTheSliceGrowsAndShrinks) {
  auto one = client_with(mebibytes(2));
  EXPECT_TRUE(succeeded(one->write("a", 7)));
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(40))));
  EXPECT_EQ(one->shrink("a", mebibytes(2))["committed"], mebibytes(2).count);
  EXPECT_TRUE(succeeded(one->check("a", 7)));
}

TEST_F(Memory, FiguresInTheSharedPageAgreeWithTheStatus) {
  auto one = client_with(mebibytes(32));
  auto two = client_with(mebibytes(8));
  Json figures;
  EXPECT_TRUE(eventually([&] {
    figures = one->ask({{"do", "usage"}})["devices"][0];
    return figures["charged"] == mebibytes(40).count;
  })) << figures;
  const v1::DeviceStatus device = broker_.device();
  EXPECT_EQ(figures["device"], device.uuid());
  EXPECT_EQ(figures["pool"], device.pool());
  EXPECT_EQ(figures["free"], device.free());
  EXPECT_EQ(figures["limit"], device.pool());
  EXPECT_EQ(figures["guarantee"], 0);
  EXPECT_EQ(figures["available"], device.free());
}

TEST_F(Memory, IsLentOfTheDeviceThatIsNamedByItsPlace) {
  auto one = client_with(mebibytes(2));
  const Json opened = one->open("b", {}, "gpu0");
  EXPECT_TRUE(succeeded(opened));
  EXPECT_EQ(opened["device"], broker_.device().uuid());
  EXPECT_TRUE(failed_with(one->open("c", {}, "gpu1"), "NOT_FOUND"));
}

TEST_F(Memory, OfSeveralSlicesIsListedUnderTheirSession) {
  auto one = client_with(mebibytes(32));
  EXPECT_TRUE(succeeded(one->open("b", mebibytes(16))));
  EXPECT_TRUE(succeeded(one->grow("b", mebibytes(6))));
  const auto sessions = broker_.sessions();
  ASSERT_EQ(sessions.size(), 1U);
  EXPECT_EQ(sessions[0].pid(), one->pid());
  EXPECT_EQ(sessions[0].uid(), ::geteuid());
  EXPECT_EQ(sessions[0].command(), "test_client");
  EXPECT_EQ(sessions[0].label(), "test");
  EXPECT_FALSE(sessions[0].ended());
  ASSERT_EQ(sessions[0].slices_size(), 2);
  EXPECT_EQ(sessions[0].slices(0).label(), "a");
  EXPECT_EQ(sessions[0].slices(0).charged(), mebibytes(32).count);
  EXPECT_EQ(sessions[0].slices(1).limit(), mebibytes(16).count);
  EXPECT_EQ(sessions[0].slices(1).charged(), mebibytes(6).count);
}

struct TwoDevices : BrokerTest {
  TwoDevices() : BrokerTest({.simulate = "1x256MiB,1x128MiB", .config = kNoSpare}) {}
};

TEST_F(TwoDevices, AreLentIndependently) {
  auto one = client_with(mebibytes(256));
  const v1::GetStatusResponse status = broker_.status();
  ASSERT_EQ(status.devices_size(), 2);
  EXPECT_TRUE(succeeded(one->open("b", {}, status.devices(1).uuid())));
  EXPECT_TRUE(succeeded(one->grow("b", mebibytes(128))));
  EXPECT_EQ(broker_.device(0).free(), 0U);
  EXPECT_EQ(broker_.device(1).free(), 0U);
  one->kill();
  expect_rest();
}

TEST_F(TwoDevices, AreNamedWhereOneIsUnknown) {
  ClientProcess one(broker_.folder());
  EXPECT_TRUE(succeeded(one.connect()));
  const Json answer = one.open("a", {}, "GPU-00000000-0000-0000-0000-000000000000");
  EXPECT_TRUE(failed_with(answer, "NOT_FOUND"));
  EXPECT_NE(answer["message"].get<std::string>().find(broker_.device(1).uuid()), std::string::npos) << answer;
}

}  // namespace
}  // namespace gpumem::test
