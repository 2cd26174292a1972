#include "daemon/kubernetes/http/api_values.h"

#include <gtest/gtest.h>

namespace gpumem::kubernetes {
namespace {

TEST(QuantityTest, IsReadAsKubernetesWritesIt) {
  EXPECT_EQ(parse_quantity("8Gi")->count, std::uint64_t{8} << 30);
  EXPECT_EQ(parse_quantity("0.5Gi")->count, std::uint64_t{1} << 29);
  EXPECT_EQ(parse_quantity("1500M")->count, 1'500'000'000u);
  EXPECT_EQ(parse_quantity("2k")->count, 2000u);
  EXPECT_EQ(parse_quantity("1e9")->count, 1'000'000'000u);
  EXPECT_EQ(parse_quantity("1E3")->count, 1000u);
  EXPECT_EQ(parse_quantity("2E")->count, 2'000'000'000'000'000'000u);
  EXPECT_EQ(parse_quantity("15Ei")->count, std::uint64_t{15} << 60);
  EXPECT_EQ(parse_quantity("18446744073709551615")->count, ~std::uint64_t{0});
}

TEST(QuantityTest, AFractionOfAByteCountsAsAWholeOne) {
  EXPECT_EQ(parse_quantity("100m")->count, 1u);
  EXPECT_EQ(parse_quantity("1.0000000000001")->count, 2u);
  EXPECT_EQ(parse_quantity("0")->count, 0u);
}

TEST(QuantityTest, OthersAreRefused) {
  for (const char* text :
       {"", "Gi", "-1", "1KB", "1Ki ", "0x10", "1.2.3", "1e99", "16Ei", "18446744073709551616", "1K", "."})
    EXPECT_FALSE(parse_quantity(text)) << text;
}

TEST(QuantityTest, IsWrittenInTheLargestWholeUnit) {
  EXPECT_EQ(quantity_text(gibibytes(80)), "80Gi");
  EXPECT_EQ(quantity_text(mebibytes(81918)), "81918Mi");
  EXPECT_EQ(quantity_text(gibibytes(1024)), "1Ti");
  EXPECT_EQ(quantity_text(Bytes{1000}), "1000");
  EXPECT_EQ(quantity_text(Bytes{0}), "0");
}

}  // namespace
}  // namespace gpumem::kubernetes
