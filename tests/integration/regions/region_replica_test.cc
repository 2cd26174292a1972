// One name on several devices: the newest of a device is mapped, also for another device that uses it.
#include "tests/integration/regions/region_fixture.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

struct RegionReplica : RegionTest {
  RegionReplica() : RegionTest({.simulate = "2x256MiB", .config = kSomeSpare}) {
    for (int i = 0; i < 2; ++i) devices_.push_back(broker_.device(i).uuid());
  }
  /// A client whose slices "0" and "1", of the two devices, are the region "weights".
  std::unique_ptr<ClientProcess> publisher_on_both(int first, int second) {
    auto one = std::make_unique<ClientProcess>(broker_.folder());
    EXPECT_TRUE(succeeded(one->connect()));
    for (int i = 0; i < 2; ++i) {
      const std::string slice = std::to_string(i);
      EXPECT_TRUE(succeeded(one->open(slice, {}, devices_[static_cast<std::size_t>(i)])));
      EXPECT_TRUE(succeeded(one->grow(slice, mebibytes(2))));
      EXPECT_TRUE(succeeded(one->write(slice, i == 0 ? first : second)));
      const Json published = publish(*one, {{"slice", slice}});
      EXPECT_TRUE(succeeded(published));
      versions_.push_back(published["version"]);
    }
    return one;
  }
  Json map_on(ClientProcess& client, int device, Json more = Json::object()) {
    more.update({{"device", devices_[static_cast<std::size_t>(device)]}});
    return map(client, more);
  }
  std::vector<std::string> devices_;
  std::vector<std::uint64_t> versions_;
};

TEST_F(RegionReplica, IsMappedByItsDevice) {
  auto writer = publisher_on_both(7, 8);
  auto reader = client();
  const Json first = map_on(*reader, 0);
  ASSERT_TRUE(succeeded(first));
  EXPECT_EQ(first["version"], versions_[0]) << "though the other is newer";
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  ASSERT_TRUE(succeeded(map_on(*reader, 1)));
  EXPECT_TRUE(succeeded(check(*reader, 8)));
  EXPECT_EQ(map(*reader)["version"], versions_[1]) << "the newest of all, if no device is named";
  EXPECT_TRUE(failed_with(map_on(*reader, 0, {{"version", versions_[1]}}), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(remove(*writer)));
  EXPECT_TRUE(failed_with(map_on(*reader, 1), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(map_on(*reader, 0))) << "each ends by itself";
}

TEST_F(RegionReplica, IsUsedByAnotherDevice) {
  auto writer = publisher_on_both(7, 8);
  auto reader = client();
  ASSERT_TRUE(succeeded(map_on(*reader, 1, {{"access", {devices_[0]}}})));
  EXPECT_TRUE(succeeded(check(*reader, 8)));
  EXPECT_TRUE(failed_with(map_on(*reader, 1, {{"access", {"GPU-00000000-0000-0000-0000-000000000000"}}}),
                          "NOT_FOUND"));
  EXPECT_TRUE(
      failed_with(map(*reader, {{"device", "GPU-00000000-0000-0000-0000-000000000000"}}), "NOT_FOUND"));
}

TEST_F(RegionReplica, IsRefusedToAProcessThatDoesNotSeeItsDevice) {
  auto writer = publisher_on_both(7, 8);
  ClientProcess blind(broker_.folder(), {.environment = {{"CUDA_VISIBLE_DEVICES", "0"}}});
  ASSERT_TRUE(succeeded(blind.connect()));
  const Json refused = map(blind, {{"device", devices_[1]}});
  EXPECT_TRUE(failed_with(refused, "NOT_FOUND"));
  EXPECT_NE(message(refused).find("CUDA_VISIBLE_DEVICES"), std::string::npos) << refused;
  const Json newest = map(blind);
  EXPECT_TRUE(failed_with(newest, "NOT_FOUND"));
  EXPECT_NE(message(newest).find("CUDA_VISIBLE_DEVICES"), std::string::npos) << newest;
  EXPECT_TRUE(succeeded(map(blind, {{"device", devices_[0]}})));
  EXPECT_TRUE(succeeded(check(blind, 7)));
  EXPECT_TRUE(eventually([&] { return imported_by(1) == mebibytes(2).count; }))
      << "nothing is left of the others";
}

TEST_F(RegionReplica, OfADeviceThatThereIsNotIsRefused) {
  auto writer = publisher_on_both(7, 8);
  FrameLane reader(broker_.folder());
  reader.greet();
  lane::MapRegion body{};
  body.name = lane::RegionName::of("weights");
  body.device = 1;
  EXPECT_EQ(reader.ask(body).as<lane::RegionMapped>().device, 1U);
  body.device = 2;
  const auto refused = reader.ask(body);
  ASSERT_TRUE(refused.is(lane::Kind::kFailed));
  EXPECT_EQ(refused.as<lane::Failed>().code, static_cast<std::uint64_t>(Code::kNotFound));
}

}  // namespace
}  // namespace gpumem::test
