// What `gpumem regions` prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text/time_format.h"
#include "client/cli/views/views.h"

namespace gpumem::cli::test {
namespace {

using testing::HasSubstr;

WallTime high_noon() { return *parse_rfc3339("2030-01-02T12:00:00Z"); }

v1::RegionInfo region(const std::string& owner, const std::string& name, std::uint64_t version) {
  v1::RegionInfo region;
  region.set_owner(owner);
  region.set_name(name);
  region.set_version(version);
  region.set_device("GPU-12345678-aaaa");
  region.set_bytes(std::uint64_t{3} << 30);
  region.set_layout(100);
  region.set_digest(std::string(31, '\0') + "\xab");
  region.set_memory(17);
  region.set_sharing(v1::SHARING_GROUP);
  v1::RegionCharge& charged = *region.add_charged();
  charged.set_session(7);
  charged.set_pid(4321);
  charged.set_command("train");
  charged.set_bytes(std::uint64_t{4} << 30);
  v1::RegionMapping& mapping = *region.add_mappings();
  mapping.set_session(9);
  mapping.set_tenant("ann");
  mapping.set_count(2);
  region.set_since("2030-01-02T11:00:00Z");
  return region;
}

v1::ListRegionsResponse listed(std::initializer_list<v1::RegionInfo> regions) {
  v1::ListRegionsResponse list;
  for (const v1::RegionInfo& one : regions) *list.add_regions() = one;
  return list;
}

TEST(RegionsView, IsATableByOwnerNameAndVersion) {
  v1::RegionInfo brief = region("bob", "a", 5);
  brief.set_sealed(true);
  brief.set_expires("2030-01-02T12:05:00Z");
  brief.set_sharing(v1::SHARING_NAMED);
  brief.add_readers("ann");
  brief.add_readers("lab");
  brief.set_offset(std::uint64_t{2} << 20);
  const auto list = listed({region("bob", "b", 4), region("ann", "z", 9), brief, region("bob", "a", 3)});
  EXPECT_EQ(regions_text(list, high_noon()),
            "OWNER  NAME  VERSION  SEALED  DEVICE        SIZE   MEMORY  SHARING  SESSION   PID  MAPPED    "
            "AGE  EXPIRES\n"
            "ann    z           9  -       GPU-12345678  3GiB       17  group          7  4321       2  1h "
            "0m  -\n"
            "bob    a           3  -       GPU-12345678  3GiB       17  group          7  4321       2  1h "
            "0m  -\n"
            "bob    a           5  yes     GPU-12345678  3GiB  17+2MiB  ann,lab        7  4321       2  1h "
            "0m  in 5m 0s\n"
            "bob    b           4  -       GPU-12345678  3GiB       17  group          7  4321       2  1h "
            "0m  -\n");
}

TEST(RegionsView, ShowsNamesThatLookAlikeAsWhatTheyAre) {
  const auto list = listed({region("ann", "weights", 4), region("bob", "weights\u00ad", 5)});
  EXPECT_THAT(regions_text(list, high_noon()), HasSubstr("bob    weights\\u{AD}"));
  EXPECT_EQ(regions_json(list)["regions"][1]["name"], "weights\u00ad") << "for programs as it is";
}

TEST(RegionsView, TellsOfTheMemory) {
  const Json json = regions_json(listed({region("bob", "weights", 3)}))["regions"][0];
  EXPECT_EQ(json["memory"], 17);
  EXPECT_EQ(json["offset"], 0);
}

TEST(RegionsView, OfAKeptOneThatNoProcessHasSaysSo) {
  v1::RegionInfo left = region("bob", "weights", 3);
  left.set_kept(true);
  left.set_linger_ms(1000);
  left.set_left("2030-01-02T11:59:00Z");
  left.mutable_charged(0)->set_pid(0);
  EXPECT_THAT(regions_text(listed({left}), high_noon()), HasSubstr("  kept  "));
  const Json json = regions_json(listed({left}))["regions"][0];
  EXPECT_EQ(json["kept"], true);
  EXPECT_EQ(json["linger_ms"], 1000);
  EXPECT_EQ(json["left"], "2030-01-02T11:59:00Z");
  left.set_kept(false);
  EXPECT_EQ(regions_text(listed({left}), high_noon()).find("kept"), std::string::npos);
}

TEST(RegionsView, AreSummedUpForTheStatus) {
  v1::RegionInfo kept = region("ann", "z", 9);
  kept.set_kept(true);
  EXPECT_EQ(regions_summary(listed({region("bob", "b", 4), kept})),
            "\n2 regions of 6GiB, 1 kept: `gpumem regions` lists them\n");
  EXPECT_EQ(regions_summary(listed({region("bob", "b", 4)})),
            "\n1 region of 3GiB: `gpumem regions` lists them\n");
  EXPECT_EQ(regions_summary({}), "");
  const Json json = regions_summary_json(listed({kept}));
  EXPECT_EQ(json, (Json{{"count", 1}, {"bytes", std::uint64_t{3} << 30}, {"kept", 1}}));
}

TEST(RegionsView, OfNoneSaysSo) { EXPECT_EQ(regions_text({}, high_noon()), "no regions\n"); }

TEST(RegionsView, ShowsNoEscapeSequencesOfWhoChoseAName) {
  EXPECT_THAT(regions_text(listed({region("bob", "a\033[2Jb", 1)}), high_noon()), HasSubstr("a?[2Jb"));
}

TEST(RegionsView, HasStableJson) {
  const Json json = regions_json(listed({region("bob", "weights", 3)}))["regions"][0];
  EXPECT_EQ(json["owner"], "bob");
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["bytes"], std::uint64_t{3} << 30);
  EXPECT_EQ(json["layout"], 100);
  EXPECT_EQ(json["digest"], std::string(62, '0') + "ab");
  EXPECT_EQ(json["sharing"], "group");
  EXPECT_EQ(json["charged"][0]["session"], 7);
  EXPECT_EQ(json["charged"][0]["pid"], 4321);
  EXPECT_EQ(json["mapped"], 2);
  EXPECT_EQ(json["mappings"][0]["tenant"], "ann");
  EXPECT_TRUE(json["mappings"][0]["pid"].is_null());
  EXPECT_TRUE(json["expires"].is_null());
  v1::RegionInfo plain = region("bob", "weights", 3);
  plain.set_digest(std::string(32, '\0'));
  EXPECT_TRUE(regions_json(listed({plain}))["regions"][0]["digest"].is_null());
}

TEST(RegionsView, OfASharingThatThisVersionDoesNotKnowIsStillShown) {
  v1::RegionInfo newer = region("bob", "weights", 3);
  newer.set_sharing(static_cast<v1::Sharing>(77));
  EXPECT_THAT(regions_text(listed({newer}), high_noon()), HasSubstr("unknown"));
}

TEST(EventsView, NamesWhatHappensToRegions) {
  v1::Event event;
  event.set_kind("published");
  event.set_tenant("bob");
  event.set_bytes(std::uint64_t{3} << 30);
  event.set_words("'weights', version 3");
  EXPECT_THAT(event_line(event), HasSubstr("published 3GiB as a region: 'weights', version 3"));
  event.set_kind("region-lost");
  EXPECT_THAT(event_line(event), HasSubstr("a region of 3GiB ended with its memory: 'weights', version 3"));
}

TEST(WhyView, TellsOfMemoryInRegions) {
  v1::ExplainResponse explained;
  v1::Standing& standing = *explained.add_devices();
  EXPECT_EQ(why_text(explained).find("published"), std::string::npos);
  standing.set_regions(2);
  standing.set_region_bytes(std::uint64_t{3} << 30);
  EXPECT_THAT(why_text(explained), HasSubstr("published: 3GiB in 2 regions"));
  EXPECT_EQ(why_json(explained)["devices"][0]["regions"], 2);
}

}  // namespace
}  // namespace gpumem::cli::test
