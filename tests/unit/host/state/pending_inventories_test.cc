// Claims of clients that come back, frame by frame; whoever sends them may be hostile.
#include "daemon/host/state/pending_inventories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpumem::host {
namespace {

using lane::Claimed;
using testing::ElementsAre;

lane::Resume part(std::vector<lane::ClaimedThing> things, std::uint64_t missing = 0,
                  std::uint64_t session = 1) {
  lane::Resume frame{};
  frame.session = session;
  frame.missing = missing;
  for (const lane::ClaimedThing& thing : things) frame.things[frame.count++] = thing;
  return frame;
}

struct InventoriesPending : testing::Test {
  PendingInventories inventories;
  const int lanes[2]{};
  const void* one = &lanes[0];
  const void* other = &lanes[1];

  bool is_refused(const lane::Resume& frame, std::size_t most = 100) {
    auto added = inventories.add(one, frame, most);
    return !added && added.error().code == Code::kInvalidArgument;
  }
};

TEST_F(InventoriesPending, AreWholeWithTheirLastFrame) {
  auto first = inventories.add(one, part({{Claimed::kSlice, 4}, {Claimed::kLease, 7}}, 2), 4);
  ASSERT_TRUE(first);
  EXPECT_FALSE(*first);
  auto last = inventories.add(one, part({{Claimed::kLease, 9}, {Claimed::kImport, 2}}), 4);
  ASSERT_TRUE(last);
  ASSERT_TRUE(*last);
  EXPECT_THAT((*last)->slices, ElementsAre(SliceId{4}));
  EXPECT_THAT((*last)->leases, ElementsAre(LeaseId{7}, LeaseId{9}));
  EXPECT_THAT((*last)->imports, ElementsAre(core::ImportId{2}));
}

TEST_F(InventoriesPending, ThatAreEmptyAreCompleteAtOnce) {
  auto whole = inventories.add(one, part({}), 0);
  ASSERT_TRUE(whole);
  EXPECT_TRUE(*whole);
}

TEST_F(InventoriesPending, OfOtherLanesAreOthers) {
  ASSERT_TRUE(inventories.add(one, part({{Claimed::kLease, 7}}, 1), 2));
  auto whole = inventories.add(other, part({{Claimed::kLease, 8}}), 2);
  ASSERT_TRUE(whole && *whole);
  EXPECT_THAT((*whole)->leases, ElementsAre(LeaseId{8}));
}

TEST_F(InventoriesPending, OfALaneThatIsGoneAreForgotten) {
  ASSERT_TRUE(inventories.add(one, part({{Claimed::kLease, 7}}, 1), 2));
  inventories.drop(one);
  auto whole = inventories.add(one, part({{Claimed::kLease, 3}}), 2);
  ASSERT_TRUE(whole && *whole);
  EXPECT_THAT((*whole)->leases, ElementsAre(LeaseId{3}));
}

TEST_F(InventoriesPending, ForMoreThanTheSessionHadAreRefused) {
  EXPECT_TRUE(is_refused(part({{Claimed::kLease, 7}, {Claimed::kLease, 8}}), 1));
  EXPECT_TRUE(is_refused(part({{Claimed::kLease, 7}}, ~std::uint64_t{0}), 1));
  EXPECT_TRUE(is_refused(part({{Claimed::kLease, 7}}, 5), 5));
}

TEST_F(InventoriesPending, WithFramesThatDoNotFitTogetherAreRefused) {
  ASSERT_TRUE(inventories.add(one, part({{Claimed::kLease, 7}}, 2), 100));
  EXPECT_TRUE(is_refused(part({{Claimed::kLease, 8}}, 5)));
  ASSERT_TRUE(inventories.add(one, part({{Claimed::kLease, 7}}, 2), 100));
  EXPECT_TRUE(is_refused(part({{Claimed::kLease, 8}}, 1, 2)));
  EXPECT_TRUE(is_refused(part({}, 3))) << "frames without end";
}

TEST_F(InventoriesPending, OutOfOrderOrOfUnknownThingsAreRefused) {
  EXPECT_TRUE(is_refused(part({{Claimed::kLease, 8}, {Claimed::kLease, 8}})));
  EXPECT_TRUE(is_refused(part({{Claimed::kLease, 8}, {Claimed::kLease, 7}})));
  EXPECT_TRUE(is_refused(part({{Claimed::kLease, 0}})));
  EXPECT_TRUE(is_refused(part({{static_cast<Claimed>(4), 8}})));
  ASSERT_TRUE(inventories.add(one, part({{Claimed::kLease, 7}}, 1), 100));
  EXPECT_TRUE(is_refused(part({{Claimed::kLease, 7}}))) << "across frames, too";
}

}  // namespace
}  // namespace gpumem::host
