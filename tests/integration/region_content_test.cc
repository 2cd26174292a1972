// The same bytes published twice: one copy, under two names.
#include <gmock/gmock.h>

#include "tests/integration/region_commands.h"
#include "tests/integration/region_fixture.h"
#include "tests/support/frame_lane.h"
#include "tests/support/session_stream.h"

namespace gpumem::test {
namespace {

using testing::HasSubstr;

const Json kHash{{"content", 9}};

struct RegionContent : RegionTest {
  static Json find(ClientProcess& client, Json more = Json::object()) {
    Json command{{"do", "map_content"}, {"bytes", mebibytes(2).count}, {"content", 9}};
    command.update(more);
    return client.ask(command);
  }
  static Json publish_again(ClientProcess& client, const std::string& name = "again",
                            Json more = Json::object()) {
    Json command{{"do", "publish"}, {"import", "i"}, {"region", name}};
    command.update(more);
    return client.ask(command);
  }
};

TEST_F(RegionContent, IsFoundAndHasTwoNames) {
  auto writer = publisher(mebibytes(2), 7, {}, kHash);
  auto second = client(), reader = client();
  EXPECT_TRUE(failed_with(find(*second, {{"content", 8}}), "NOT_FOUND"));
  EXPECT_TRUE(failed_with(find(*second, {{"content", 0}}), "INVALID_ARGUMENT"));
  EXPECT_TRUE(failed_with(find(*second, {{"device", "GPU-0"}}), "INVALID_ARGUMENT"));
  ASSERT_TRUE(succeeded(find(*second)));
  EXPECT_TRUE(succeeded(check(*second, 7))) << "it compares the bytes";
  ASSERT_TRUE(succeeded(publish_again(*second)));
  EXPECT_TRUE(failed_with(publish_again(*second, ""), "INVALID_ARGUMENT"));
  EXPECT_TRUE(failed_with(publish_again(*second, "open", {{"sharing", kPublic}}), "FAILED_PRECONDITION"));
  ASSERT_TRUE(succeeded(map(*reader, {{"region", "again"}})));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  writer.reset();
  EXPECT_TRUE(succeeded(remove(*second)));
  ASSERT_TRUE(succeeded(map(*reader, {{"region", "again"}}))) << "its memory goes on";
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_TRUE(failed_with(map(*reader), "NOT_FOUND"));
}

TEST_F(RegionContent, OfALiarIsSeenByItsBytes) {
  auto liar = publisher(mebibytes(2), 6, {}, kHash);
  auto second = client_with(mebibytes(2));
  ASSERT_TRUE(succeeded(find(*second)));
  EXPECT_FALSE(succeeded(check(*second, 7)));
  EXPECT_TRUE(succeeded(unmap(*second)));
  EXPECT_TRUE(succeeded(second->write("a", 7)));
  EXPECT_TRUE(succeeded(publish(*second, {{"region", "right"}, {"content", 9}})));
  auto third = client();
  ASSERT_TRUE(succeeded(find(*third)));
  EXPECT_TRUE(succeeded(check(*third, 7))) << "the newest";
}

TEST_F(RegionContent, DoesNotChange) {
  auto writer = publisher(mebibytes(2), 7, {}, kHash);
}

TEST_F(RegionContent, IsFoundByTheNextBroker) {
  auto writer = publisher(mebibytes(2), 7, {}, kHash);
  auto second = client(), third = client();
  ASSERT_TRUE(succeeded(find(*second)));
  ASSERT_EQ(broker_.upgrade().status, 0);
  ASSERT_TRUE(succeeded(publish_again(*second)));
  ASSERT_EQ(broker_.upgrade().status, 0);
  ASSERT_TRUE(succeeded(find(*third)));
  EXPECT_TRUE(succeeded(check(*third, 7)));
  ASSERT_TRUE(succeeded(map(*third, {{"region", "again"}})));
}

TEST_F(RegionContent, IsNamedAgainByFrames) {
  auto writer = publisher(mebibytes(2), 7, {}, kHash);
  FrameLane newer(broker_.folder());
  newer.greet();
  lane::MapContent wanted{0, mebibytes(2).count, 0, {}, {}};
  wanted.content.fill(9);
  const auto found = newer.ask(wanted);
  ASSERT_TRUE(found.is(lane::Kind::kRegionMapped));
  lane::PublishAlias alias{};
  alias.name = lane::RegionName::of("again");
  alias.version = found.as<lane::RegionMapped>().version;
  EXPECT_GT(newer.ask(alias).as<lane::Published>().version, alias.version);
  wanted.device = 7;
  EXPECT_TRUE(newer.ask(wanted).is(lane::Kind::kFailed));
}

TEST_F(RegionContent, IsNamedAgainByGrpc) {
  SessionStream stream(broker_.folder());
  stream.open();
  const std::uint64_t slice = stream.open_slice();
  const auto granted = stream.ask(growth(slice, mebibytes(2), std::chrono::seconds(30)));
  ASSERT_TRUE(granted.has_granted()) << granted.ShortDebugString();
  v1::SessionRequest request;
  v1::PublishRequest& publish = *request.mutable_publish();
  publish.set_name("weights");
  publish.set_slice(slice);
  publish.add_leases(granted.granted().leases(0).id());
  publish.set_content("short");
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::INVALID_ARGUMENT);
  publish.set_content(std::string(32, '\x09'));
  const auto published = stream.ask(request);
  ASSERT_TRUE(published.has_published()) << published.ShortDebugString();
  request.mutable_publish_alias()->set_name("again");
  request.mutable_publish_alias()->set_version(published.published().version());
  EXPECT_GT(stream.ask(request).published().version(), published.published().version());
  request.mutable_map_content();
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::FAILED_PRECONDITION);
  auto reader = client();
  EXPECT_TRUE(succeeded(map(*reader, {{"region", "again"}})));
  EXPECT_TRUE(succeeded(find(*reader)));
}

struct RegionContentOfLab : RegionsOfLab {};

TEST_F(RegionContentOfLab, IsFoundByItsOwnTenantAlone) {
  auto writer = publisher(mebibytes(2), 7, ann_, {{"content", 9}, {"sharing", kPublic}});
  auto bob = client({}, bob_), mate = client({}, ann_);
  const Json unknown = RegionContent::find(*bob, {{"content", 8}});
  const Json refused = RegionContent::find(*bob);
  EXPECT_TRUE(failed_with(refused, "NOT_FOUND"));
  EXPECT_EQ(message(refused), message(unknown)) << "as if there were none";
  ASSERT_TRUE(succeeded(map(*bob, {{"owner", "ann"}})));
  EXPECT_TRUE(failed_with(RegionContent::publish_again(*bob), "NOT_FOUND")) << "it is another tenant's";
  EXPECT_TRUE(succeeded(RegionContent::find(*mate)));
}

TEST_F(RegionCommands, TheSameFileIsPublishedTwiceWithOneCopy) {
  const std::string content = some_content();
  const std::string path = file("weights.bin", content), other = file("other.bin", content + "x");
  auto first = publish({path, "--deduplicate"});
  auto second = publish({path, "--deduplicate", "--name", "again"});
  auto third = publish({other, "--deduplicate"});
  const Json all = regions();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0]["memory"], all[1]["memory"]);
  EXPECT_EQ(all[0]["content"], all[1]["content"]);
  EXPECT_NE(all[0]["memory"], all[2]["memory"]);
  EXPECT_EQ(all[0]["charged"], all[1]["charged"]);
  EXPECT_EQ(all[0]["charged"].size(), 1U);
  EXPECT_EQ(gpumem({"cat", "again"}).output, content);
  EXPECT_EQ(interrupt(*second), 0);
  EXPECT_EQ(regions().size(), 2U) << "the name goes with its program";
  second = publish({path, "--deduplicate", "--name", "again"});
  EXPECT_EQ(interrupt(*first), 0);
  EXPECT_EQ(gpumem({"cat", "again"}).output, content) << "and the memory stays with the other one";
  EXPECT_EQ(interrupt(*second), 0);
  EXPECT_EQ(interrupt(*third), 0);
  EXPECT_TRUE(eventually([&] { return regions().empty(); }));
}

TEST_F(RegionCommands, AKeptFileIsPublishedTwiceWithOneCopy) {
  const std::string path = file("weights.bin", "content");
  EXPECT_EQ(gpumem({"publish", path, "--deduplicate", "--keep"}).status, 0);
  const Outcome again = gpumem({"publish", path, "--deduplicate", "--keep", "--name", "again"});
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.output, HasSubstr("of the same memory as version"));
  const Outcome open =
      gpumem({"publish", path, "--deduplicate", "--keep", "--name", "open", "--sharing", "public", "--json"});
  EXPECT_EQ(Json::parse(open.output)["deduplicated"], false) << "that one is private";
  const Outcome json = gpumem({"publish", path, "--deduplicate", "--keep", "--name", "more", "--json"});
  EXPECT_EQ(Json::parse(json.output)["deduplicated"], true);
  const std::string saved = (files_ / "saved").string();
  EXPECT_EQ(gpumem({"regions", "save", "again", saved}).status, 0);
  const Outcome restored = gpumem({"regions", "restore", saved, "restored", "--deduplicate", "--keep"});
  EXPECT_THAT(restored.output, HasSubstr("of the same memory as version"));
  EXPECT_EQ(gpumem({"regions", "rm", "weights.bin"}).status, 0);
  EXPECT_EQ(gpumem({"cat", "again"}).output, "content");
  EXPECT_EQ(gpumem({"cat", "restored"}).output, "content");
}

}  // namespace
}  // namespace gpumem::test
