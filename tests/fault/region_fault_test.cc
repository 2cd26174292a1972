// Devices that do not reach each other: a region is not mapped for them, and nothing is left of it.
#include "tests/fault/fault_fixture.h"

namespace gpumem::test {
namespace {

struct RegionPeers : FaultTest {
  RegionPeers() : FaultTest({.simulate = "2x256MiB", .config = kSomeSpare}) {}
  /// Bytes of others' memory that the session at that place of the listing uses.
  std::uint64_t imported_by(std::size_t place) {
    std::uint64_t imported = 0;
    const v1::SessionInfo session = broker_.sessions().at(place);
    for (const v1::SharedMemory& one : session.shared()) imported += one.imported();
    return imported;
  }
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
  EXPECT_EQ(reader->leave(), 0);
  EXPECT_EQ(writer->leave(), 0);
  expect_rest();
}

}  // namespace
}  // namespace gpumem::test
