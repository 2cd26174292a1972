#include "daemon/kubernetes/device_plugin/units.h"

#include <gtest/gtest.h>

namespace gpumem::kubernetes {
namespace {

UnitSet some_units(const std::string& uuid, std::uint64_t first, std::uint64_t count) {
  UnitSet units;
  for (std::uint64_t number = first; number < first + count; ++number) units.insert(Unit{uuid, number}.id());
  return units;
}

UnitSet together(UnitSet one, const UnitSet& other) {
  one.insert(other.begin(), other.end());
  return one;
}

TEST(UnitsTest, AreNamedByDeviceAndNumber) {
  const auto unit = parse_unit("GPU-a::17");
  ASSERT_TRUE(unit);
  EXPECT_EQ(unit->uuid, "GPU-a");
  EXPECT_EQ(unit->number, 17u);
  for (const char* wrong : {"", "GPU-a", "::1", "GPU-a::", "GPU-a::-1", "GPU-a::+1", "GPU-a::01", "GPU-a::1x",
                            "GPU-a::18446744073709551616"})
    EXPECT_FALSE(parse_unit(wrong)) << wrong;
  const std::string long_name(62, 'x');
  EXPECT_FALSE(parse_unit(long_name + "::1"));  // longer than the kubelet takes
}

TEST(UnitsTest, ResourceSaysHowMuchAUnitIs) {
  EXPECT_EQ(resource_name("gpumem.dev", mebibytes(256)), "gpumem.dev/memory-256Mi");
  EXPECT_EQ(resource_name("example.com", gibibytes(1)), "example.com/memory-1Gi");
}

TEST(UnitsTest, OnlyWholeUnitsAreCounted) {
  EXPECT_EQ(unit_count({"GPU-a", "gpu-a", "", mebibytes(1023)}, mebibytes(256)), 3u);
  EXPECT_EQ(unit_count({"GPU-a", "gpu-a", "", mebibytes(100)}, mebibytes(256)), 0u);
}

TEST(UnitsTest, AreTakenFromTheFullestDeviceThatHasRoom) {
  const UnitSet available = together(some_units("GPU-a", 0, 10), some_units("GPU-b", 90, 4));
  EXPECT_EQ(preferred_units(available, {}, 3),
            (std::vector<std::string>{"GPU-b::90", "GPU-b::91", "GPU-b::92"}));
  EXPECT_EQ(preferred_units(available, {}, 5)[0], "GPU-a::0");
  EXPECT_EQ(preferred_units(available, {}, 12).size(), 12u);
  EXPECT_EQ(preferred_units(available, {}, 12)[9], "GPU-a::9");
  EXPECT_EQ(preferred_units(available, {}, 15).size(), 14u);
}

TEST(UnitsTest, AreTakenFromTheDeviceOnWhichTheContainerHasBegun) {
  const UnitSet required{"GPU-a::7"};
  const UnitSet available = together(some_units("GPU-a", 0, 10), some_units("GPU-b", 0, 3));
  EXPECT_EQ(preferred_units(available, required, 3),
            (std::vector<std::string>{"GPU-a::7", "GPU-a::0", "GPU-a::1"}));
  EXPECT_EQ(preferred_units(available, required, 1), std::vector<std::string>{"GPU-a::7"});
}

TEST(UnitsTest, OtherNamesAreNeverPreferred) {
  EXPECT_EQ(preferred_units({"nonsense", "GPU-a::1"}, {}, 2), std::vector<std::string>{"GPU-a::1"});
}

}  // namespace
}  // namespace gpumem::kubernetes
