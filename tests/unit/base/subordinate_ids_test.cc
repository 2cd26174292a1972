#include "base/system/subordinate_ids.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace gpumem {
namespace {

std::optional<Owner> find_owner(const std::string& name) {
  if (name == "root") return Owner{0, {0}};
  if (name == "ann" || name == "1000") return Owner{1000, {1000, 27}};
  if (name == "bob") return Owner{1001, {1001}};
  return std::nullopt;
}

// The owner of `uid` by a file of this text; 0: none.
std::uint32_t owner_in(const std::string& text, std::uint32_t uid) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "subuid", text);
  SubordinateIds ids(folder / "subuid", find_owner);
  ids.read();
  const auto owner = ids.owner_of(uid);
  return owner ? owner->uid : 0;
}

struct Case {
  const char* name;
  const char* text;
  std::uint32_t uid;
  std::uint32_t owner;
};

class SubordinateIdsTest : public testing::TestWithParam<Case> {};

TEST_P(SubordinateIdsTest, HaveAnOwner) {
  EXPECT_EQ(owner_in(GetParam().text, GetParam().uid), GetParam().owner) << GetParam().text;
}

constexpr const char* kUsual = "ann:100000:65536\nbob:165536:65536\n";
INSTANTIATE_TEST_SUITE_P(
    Of, SubordinateIdsTest,
    testing::Values(Case{"TheFirst", kUsual, 100'000, 1000}, Case{"TheLast", kUsual, 165'535, 1000},
                    Case{"TheNextRange", kUsual, 165'536, 1001}, Case{"NoRangeBelow", kUsual, 99'999, 0},
                    Case{"NoRangeAbove", kUsual, 231'072, 0},
                    Case{"AnOwnerByNumber", "1000:5000:1\n", 5000, 1000},
                    Case{"Root", "root:100000:65536\n", 100'000, 0},
                    Case{"TwoOwners", "ann:100000:100\nbob:100050:100\n", 100'010, 0},
                    Case{"RootAndAnother", "root:100000:100\nbob:100050:100\n", 100'140, 0},
                    Case{"OneOwnerTwice", "ann:100000:100\nann:100050:10\n", 100'090, 1000},
                    Case{"TheOwnerItself", "ann:0:65536\n", 1000, 0},
                    Case{"RootInARange", "ann:0:65536\n", 0, 0},
                    Case{"AnUnknownUser", "cat:100000:65536\n", 100'000, 0},
                    Case{"BrokenLines",
                         "ann\nann:1:\nann:-5:9\nann:4294967295:2\nann:9:0\nbob:70:5:\nann:50:5", 52, 1000},
                    Case{"TheLastNumber", "ann:4294967290:5\n", 4'294'967'294U, 1000}),
    [](const auto& info) { return info.param.name; });

TEST(SubordinateIds, AreReadAgainWhenTheFileHasChanged) {
  const test::TemporaryFolder folder;
  SubordinateIds ids(folder / "subuid", find_owner);
  ids.read();
  EXPECT_FALSE(ids.owner_of(100'000)) << "there is no file";
  test::write_file(folder / "subuid", "ann:100000:10\n");
  ids.read();
  EXPECT_EQ(ids.owner_of(100'000), find_owner("ann"));
  test::write_file(folder / "subuid", "");
  ids.read();
  EXPECT_FALSE(ids.owner_of(100'000));
}

// A directory service may begin after the broker. An owner is looked up until it is found.
TEST(SubordinateIds, HaveAnOwnerOnceItIsThere) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "subuid", kUsual);
  std::map<std::string, Owner> accounts{{"ann", {1000, {1000}}}};
  std::map<std::string, int> asked;
  SubordinateIds ids(folder / "subuid", [&](const std::string& name) -> std::optional<Owner> {
    ++asked[name];
    const auto found = accounts.find(name);
    return found == accounts.end() ? std::nullopt : std::optional(found->second);
  });
  using Again = SubordinateIds::Again;
  ids.read();
  accounts["bob"] = {1001, {1001}};
  ids.read();
  EXPECT_FALSE(ids.owner_of(165'536)) << "the file is as it was";
  ids.read(Again::kMissing);
  ids.read(Again::kMissing);
  EXPECT_EQ(ids.owner_of(165'536), accounts.at("bob"));
  EXPECT_EQ(asked, (std::map<std::string, int>{{"ann", 1}, {"bob", 2}}));
  accounts["ann"] = {1002, {1002, 27}};
  ids.read(Again::kAll);
  EXPECT_EQ(ids.owner_of(100'000), accounts.at("ann"));
}

}  // namespace
}  // namespace gpumem
