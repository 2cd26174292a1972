// A store of few places is shared by tenants, and kept regions go first.
#include "daemon/host/driver/store_places.h"

#include <gtest/gtest.h>

namespace gpumem::host {
namespace {

struct StorePlacesTest : testing::Test {
  StorePlaces::Outcome take(std::uint64_t extent, const std::string& tenant, bool is_kept = false) {
    return places.take(ExtentId{extent}, {tenant, is_kept});
  }
  /// Ann takes places until she gets no more.
  void fill(bool is_kept) {
    for (std::uint64_t extent = 1; take(extent, "ann", is_kept).has_place && extent <= 10; ++extent) {
    }
  }
  StorePlaces places{4};
};

TEST_F(StorePlacesTest, OfWhoHasMostGoToWhoHasLessUntilTheyHaveTheSame) {
  fill(false);
  EXPECT_FALSE(take(20, "ann").has_place);
  EXPECT_EQ(take(21, "bob").loser, ExtentId{4});
  EXPECT_EQ(take(22, "bob").loser, ExtentId{3});
  EXPECT_FALSE(take(23, "bob").has_place);
}

TEST_F(StorePlacesTest, GoToAKeptRegionFirst) {
  fill(false);
  EXPECT_EQ(take(21, "bob", true).loser, ExtentId{4});
  EXPECT_EQ(take(22, "ann", true).loser, ExtentId{3});
  EXPECT_EQ(take(2, "ann", true).loser, std::nullopt) << "it has one, and is a kept region's from now on";
  EXPECT_EQ(take(23, "bob", true).loser, ExtentId{1});
  EXPECT_FALSE(take(24, "cat").has_place) << "no other memory pushes out a kept region's";
}

TEST_F(StorePlacesTest, OfAKeptRegionAreNotLostToAnotherTenantsNumberOfThem) {
  EXPECT_TRUE(take(20, "bob", true).has_place);
  fill(true);
  EXPECT_FALSE(take(21, "ann", true).has_place);
  EXPECT_EQ(take(22, "cat", true).loser, ExtentId{3});
  EXPECT_EQ(take(20, "bob", true).loser, std::nullopt) << "it still has its own";
}

TEST_F(StorePlacesTest, ThatAreFreeGoToWhoeverAsks) {
  fill(false);
  places.free(ExtentId{2});
  places.free(ExtentId{2});
  const auto outcome = take(20, "ann");
  EXPECT_TRUE(outcome.has_place);
  EXPECT_EQ(outcome.loser, std::nullopt);
}

}  // namespace
}  // namespace gpumem::host
