// Devices that do not reach each other, and drivers that fail: what cannot be mapped is not mapped, and a
// kept region stays kept.
#include <algorithm>

#include "tests/fault/fault_fixture.h"

namespace gpumem::test {
namespace {

struct RegionPeers : FaultTest {
  RegionPeers() : FaultTest({.simulate = "2x256MiB", .config = kSomeSpare}) {}
};

TEST_F(RegionPeers, ThatCannotAccessTheMemoryAreRefused) {
  auto writer = client_with(mebibytes(2));
  ASSERT_TRUE(succeeded(writer->write("a", 7)));
  ASSERT_TRUE(succeeded(writer->ask({{"do", "publish"}, {"slice", "a"}, {"region", "weights"}})));
  auto reader = client();
  const std::string first = broker_.device(0).uuid(), second = broker_.device(1).uuid();
  const Json for_second{{"do", "map_region"}, {"region", "weights"}, {"access", {second}}};
  inject("cuDeviceCanAccessPeer fail INVALID_DEVICE", reader->pid());
  const Json refused = reader->ask(for_second);
  EXPECT_TRUE(failed_with(refused, "FAILED_PRECONDITION"));
  EXPECT_NE(refused["message"].get<std::string>().find(second + " has no peer access"), std::string::npos)
      << refused;
  heal();
  EXPECT_TRUE(eventually([&] { return imported_by(1) == 0; })) << "nothing is mapped";
  inject("cuMemSetAccess fail INVALID_DEVICE nth 2", reader->pid());
  EXPECT_FALSE(succeeded(reader->ask(for_second)));
  heal();
  EXPECT_TRUE(eventually([&] { return imported_by(1) == 0; }));
  ASSERT_TRUE(succeeded(reader->ask(for_second)));
  EXPECT_TRUE(succeeded(reader->ask({{"do", "check"}, {"import", "i"}, {"value", 7}})));
  expect_rest_after(*reader, *writer);
}

/// Somebody who adopts a kept region, which its driver does not map.
struct RegionAdoption : RegionPeers, testing::WithParamInterface<const char*> {};

TEST_P(RegionAdoption, ThatFailsLeavesTheRegionKept) {
  auto writer = client_with(mebibytes(2));
  ASSERT_TRUE(succeeded(writer->write("a", 7)));
  ASSERT_TRUE(
      succeeded(writer->ask({{"do", "publish"}, {"slice", "a"}, {"region", "weights"}, {"keep", true}})));
  EXPECT_EQ(writer->leave(), 0);
  const auto is_kept = [&] {
    const auto sessions = broker_.sessions();
    return std::ranges::any_of(sessions, [](const auto& one) { return one.detached(); });
  };
  ASSERT_TRUE(eventually(is_kept));
  auto successor = client();
  const Json adopt{
      {"do", "map_region"}, {"region", "weights"}, {"adopt", true}, {"access", {broker_.device(1).uuid()}}};
  inject(GetParam(), successor->pid());
  EXPECT_FALSE(succeeded(successor->ask(adopt)));
  heal();
  EXPECT_TRUE(eventually(is_kept)) << "it is nobody's again";
  ASSERT_TRUE(succeeded(successor->ask(adopt)));
  EXPECT_TRUE(succeeded(successor->ask({{"do", "check"}, {"import", "i"}, {"value", 7}})));
  EXPECT_TRUE(eventually([&] { return !is_kept(); }));
  expect_rest_after(*successor);
}

INSTANTIATE_TEST_SUITE_P(Calls, RegionAdoption,
                         testing::Values("cuMemImportFromShareableHandle fail OUT_OF_MEMORY",
                                         "cuMemAddressReserve fail OUT_OF_MEMORY",
                                         "cuMemMap fail OUT_OF_MEMORY",
                                         "cuDeviceCanAccessPeer fail INVALID_DEVICE"));

}  // namespace
}  // namespace gpumem::test
