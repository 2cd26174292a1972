// Regions: published, mapped by whom they are shared with, removed.
#include "tests/integration/regions/region_fixture.h"
#include "tests/support/lanes/frame_lane.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

struct Region : RegionTest {
  Region() : RegionTest({.simulate = "1x512MiB", .config = kSomeSpare}) {}
};

TEST_F(Region, IsReadByItsNameInAnotherProcessAndChargedOnce) {
  auto writer = publisher(mebibytes(6), 7);
  auto reader = client();
  const Json mapped = map(*reader);
  ASSERT_TRUE(succeeded(mapped));
  EXPECT_EQ(mapped["bytes"], mebibytes(6).count);
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count);
  EXPECT_EQ(broker_.sessions().at(1).shared(0).imported(), mebibytes(6).count);
  EXPECT_EQ(broker_.sessions().at(1).shared(0).charged(), 0U);
  EXPECT_TRUE(succeeded(unmap(*reader)));
  expect_rest_after(*reader, *writer);
}

TEST_F(Region, TellsItsLayoutAndDigest) {
  auto writer = client_with(mebibytes(6));
  EXPECT_TRUE(succeeded(writer->write("a", 7)));
  ASSERT_TRUE(succeeded(
      publish(*writer, {{"offset", mebibytes(3).count}, {"bytes", 8192}, {"layout", 4096}, {"digest", 9}})));
  auto reader = client();
  const Json mapped = map(*reader);
  ASSERT_TRUE(succeeded(mapped));
  EXPECT_EQ(mapped["bytes"], 8192);
  EXPECT_EQ(mapped["layout"], 4096);
  EXPECT_EQ(mapped["digest"], Json(std::vector<int>(32, 9)));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  expect_rest_after(*reader, *writer);
}

TEST_F(Region, WriteToAReadOnlyRegionEndsTheWriterAlone) {
  auto writer = publisher(mebibytes(2), 7);
  auto reader = client(), other = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  ASSERT_TRUE(succeeded(map(*other)));
  const Json refused = reader->ask({{"do", "write"}, {"import", "i"}, {"value", 8}});
  EXPECT_FALSE(refused["ok"].get<bool>()) << "by the driver: " << refused;
  reader->tell({{"do", "store"}});
  EXPECT_EQ(reader->child().wait(), -SIGSEGV);
  EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 2; }));
  EXPECT_TRUE(succeeded(check(*other, 7)));
  EXPECT_TRUE(succeeded(writer->check("a", 7)));
  expect_rest_after(*other, *writer);
}

TEST_F(Region, IsWrittenWhereThatIsAskedFor) {
  auto writer = publisher(mebibytes(2), 7);
  auto reader = client(), partner = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  ASSERT_TRUE(succeeded(map(*partner, {{"writable", true}})));
  EXPECT_TRUE(succeeded(partner->ask({{"do", "write"}, {"import", "i"}, {"value", 8}})));
  EXPECT_TRUE(succeeded(check(*reader, 8)));
  EXPECT_TRUE(succeeded(writer->check("a", 8)));
}

TEST_F(Region, NewVersionLeavesTheOlderOneMapped) {
  auto writer = client_with(mebibytes(2));
  EXPECT_TRUE(succeeded(writer->write("a", 1)));
  const Json first = publish(*writer);
  auto reader = client();
  ASSERT_TRUE(succeeded(map(*reader, {{"import", "old"}})));
  EXPECT_TRUE(succeeded(writer->open("b")));
  EXPECT_TRUE(succeeded(writer->grow("b", mebibytes(4))));
  EXPECT_TRUE(succeeded(writer->write("b", 2)));
  const Json second = publish(*writer, {{"slice", "b"}});
  ASSERT_TRUE(succeeded(second));
  EXPECT_GT(second["version"], first["version"]);
  EXPECT_TRUE(succeeded(check(*reader, 1, "old"))) << "readers move when they choose";
  EXPECT_EQ(map(*reader, {{"import", "new"}})["version"], second["version"]);
  EXPECT_TRUE(succeeded(check(*reader, 2, "new")));
  const Json again = map(*reader, {{"import", "again"}, {"version", first["version"]}});
  EXPECT_EQ(again["version"], first["version"]);
  EXPECT_TRUE(succeeded(check(*reader, 1, "again")));
  EXPECT_TRUE(succeeded(remove(*writer)));
  EXPECT_EQ(map(*reader)["version"], first["version"]) << "the newest that there is";
  EXPECT_TRUE(succeeded(check(*reader, 2, "new"))) << "whoever has it keeps it";
}

TEST_F(Region, ThatIsRemovedStaysMapped) {
  auto writer = publisher(mebibytes(2), 7);
  auto reader = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  EXPECT_TRUE(succeeded(remove(*reader))) << "by any process of its tenant";
  EXPECT_TRUE(failed_with(remove(*writer), "NOT_FOUND"));
  EXPECT_TRUE(failed_with(map(*reader, {{"import", "j"}}), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  expect_rest_after(*reader, *writer);
}

TEST_F(Region, EndsWhenItsMemoryIsGivenBack) {
  auto writer = publisher(mebibytes(2), 7);
  auto reader = client(), late = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  EXPECT_TRUE(succeeded(writer->shrink("a", {})));
  EXPECT_TRUE(succeeded(check(*reader, 7))) << "what is mapped stays";
  EXPECT_EQ(writer->leave(), 0);
  EXPECT_TRUE(succeeded(map(*late))) << "a process of its tenant has all of it";
  expect_rest_after(*reader, *late);
}

TEST_F(Region, UnprintableNamesAreRefused) {
  auto writer = client_with(mebibytes(2));
  const std::vector<Json> wrong{"",     std::string(129, 'x'),       "a\nb",
                                "\x7f", Json::array({27, '[', 'm'}), Json::array({'a', 255})};
  for (const Json& name : wrong) {
    const Json refused = publish(*writer, {{"region", name}});
    EXPECT_TRUE(failed_with(refused, "INVALID_ARGUMENT")) << name;
    EXPECT_NE(message(refused).find("128"), std::string::npos) << "says what is right: " << refused;
    EXPECT_TRUE(failed_with(map(*writer, {{"region", name}}), "INVALID_ARGUMENT")) << name;
    EXPECT_TRUE(failed_with(remove(*writer, {{"region", name}}), "INVALID_ARGUMENT")) << name;
  }
  const std::vector<std::string> right{std::string(128, 'x'), "../%s'; \"weights\" ", "gewichte-\u00e4"};
  for (const std::string& name : right) {
    EXPECT_TRUE(succeeded(publish(*writer, {{"region", name}}))) << name;
    EXPECT_TRUE(succeeded(map(*writer, {{"region", name}, {"import", name}}))) << name;
    EXPECT_TRUE(failed_with(map(*writer, {{"region", name.substr(1)}}), "NOT_FOUND")) << name;
    EXPECT_TRUE(succeeded(remove(*writer, {{"region", name}}))) << name;
  }
}

TEST_F(Region, BadTermsAreRefusedWithAReason) {
  auto writer = client_with(mebibytes(2));
  const auto refused = [&](const Json& terms, const char* reason) {
    const Json answer = publish(*writer, terms);
    EXPECT_TRUE(failed_with(answer, "INVALID_ARGUMENT")) << terms;
    EXPECT_NE(message(answer).find(reason), std::string::npos) << answer;
  };
  refused({{"bytes", 4096}, {"layout", 4097}}, "a layout of");
  refused({{"offset", mebibytes(2).count}}, "not committed");
  refused({{"bytes", mebibytes(3).count}}, "not committed");
  refused({{"sharing", kNamed}}, "named");
  refused({{"sharing", kPublic}, {"readers", {"zoe"}}}, "named");
  refused({{"sharing", kNamed}, {"readers", std::vector<std::string>(9, "zoe")}}, "8 tenants at most");
  refused({{"sharing", kNamed}, {"readers", {"a\nb"}}}, "not printable");
  refused({{"sharing", 4}}, "no such kind of sharing");
  refused({{"sharing", -1}}, "no such kind of sharing");
  refused({{"life_ms", -1}}, "life_ms");
  EXPECT_TRUE(failed_with(map(*writer), "NOT_FOUND")) << "nothing was published";
}

TEST_F(Region, TooManyExtentsAreRefusedWithAReason) {
  auto writer = client();
  for (std::uint64_t i = 1; i <= 129; ++i) ASSERT_TRUE(succeeded(writer->grow("a", mebibytes(2 * i))));
  const Json refused = publish(*writer);
  EXPECT_TRUE(failed_with(refused, "RESOURCE_EXHAUSTED"));
  EXPECT_NE(message(refused).find("128 extents"), std::string::npos) << refused;
  EXPECT_TRUE(succeeded(publish(*writer, {{"bytes", mebibytes(256).count}})));
  auto reader = client();
  EXPECT_EQ(map(*reader)["bytes"], mebibytes(256).count);
}

TEST_F(Region, HasTwoHundredReaders) {
  auto writer = publisher(mebibytes(2), 7);
  std::vector<std::unique_ptr<FrameLane>> readers;
  std::vector<std::uint64_t> imports;
  while (readers.size() < 200) {
    readers.push_back(std::make_unique<FrameLane>(broker_.folder()));
    readers.back()->greet();
    auto mapped = readers.back()->ask(lane::MapRegion{{}, lane::RegionName::of("weights"), 0, {}, 0});
    ASSERT_TRUE(mapped.is(lane::Kind::kRegionMapped)) << readers.size();
    ASSERT_EQ(mapped.descriptors.size(), 1U);
    imports.push_back(mapped.as<lane::RegionMapped>().import);
  }
  EXPECT_EQ(broker_.device().active(), mebibytes(2).count);
  EXPECT_EQ(broker_.sessions().size(), 201U);
  for (std::size_t i = 0; i < readers.size(); ++i)
    EXPECT_TRUE(readers[i]->ask(lane::ReleaseImport{imports[i]}).is(lane::Kind::kDone));
  readers.clear();
  expect_rest_after(*writer);
}

TEST_F(Region, IsOneOfThousands) {
  auto writer = client_with(mebibytes(2));
  EXPECT_TRUE(succeeded(writer->write("a", 7)));
  EXPECT_TRUE(
      succeeded(writer->ask({{"do", "publish_many"}, {"slice", "a"}, {"region", "r"}, {"count", 10'000}})));
  auto reader = client();
  for (const char* name : {"r0", "r5000", "r9999"}) {
    EXPECT_TRUE(succeeded(map(*reader, {{"region", name}})));
    EXPECT_TRUE(succeeded(check(*reader, 7)));
  }
  EXPECT_TRUE(failed_with(map(*reader, {{"region", "r10000"}}), "NOT_FOUND"));
  EXPECT_EQ(reader->leave(), 0);
  EXPECT_EQ(writer->leave(), 0) << "and they end with it";
  auto late = client();
  EXPECT_TRUE(failed_with(map(*late, {{"region", "r0"}}), "NOT_FOUND"));
  expect_rest_after(*late);
}

TEST_F(Region, IsPublishedByGrpcAndMappedOnALane) {
  auto reader = client();
  SessionStream stream(broker_.folder());
  stream.open();
  const std::uint64_t slice = stream.open_slice();
  const v1::SessionAnswer granted = stream.ask(growth(slice, mebibytes(4)));
  ASSERT_TRUE(granted.has_granted());
  EXPECT_TRUE(eventually([&] { return broker_.device().active() == mebibytes(4).count; }));
  v1::SessionRequest request;
  request.mutable_publish()->set_name("weights");
  request.mutable_publish()->set_slice(slice);
  request.mutable_publish()->set_digest(std::string(32, '\x09'));
  for (const v1::Lease& lease : granted.granted().leases()) request.mutable_publish()->add_leases(lease.id());
  const v1::SessionAnswer published = stream.ask(request);
  ASSERT_TRUE(published.has_published()) << published.DebugString();
  const Json mapped = map(*reader);
  ASSERT_TRUE(succeeded(mapped));
  EXPECT_EQ(mapped["version"], published.published().version());
  EXPECT_EQ(mapped["bytes"], mebibytes(4).count);
  EXPECT_EQ(mapped["digest"], Json(std::vector<int>(32, 9)));
  EXPECT_TRUE(succeeded(check(*reader, 0)));
  request.mutable_map_region()->set_name("weights");
  const v1::FailedResponse refused = stream.ask(request).failed();
  EXPECT_EQ(refused.code(), grpc::StatusCode::FAILED_PRECONDITION) << "a stream carries no descriptors";
  request.mutable_remove_region()->set_name("weights");
  EXPECT_TRUE(stream.ask(request).has_done());
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(failed_with(map(*reader), "NOT_FOUND"));
}

// ---- Several tenants ----

TEST_F(RegionsOfLab, ArePublicOnRequest) {
  auto writer = publisher(mebibytes(2), 7, bob_, {{"sharing", kPublic}});
  auto mate = client({}, bob_), stranger = client({}, zoe_);
  for (ClientProcess* reader : {mate.get(), stranger.get()}) {
    EXPECT_EQ(map(*reader, {{"owner", "bob"}})["bytes"], mebibytes(2).count);
    EXPECT_TRUE(succeeded(check(*reader, 7)));
  }
  const Json written{{"import", "w"}, {"owner", "bob"}, {"writable", true}};
  EXPECT_TRUE(succeeded(map(*mate, written)));
  EXPECT_TRUE(failed_with(map(*stranger, written), "PERMISSION_DENIED"));
  EXPECT_EQ(broker_.tenant("bob").charged(), mebibytes(2).count);
  EXPECT_EQ(broker_.tenant("zoe").charged(), 0U);
  EXPECT_TRUE(failed_with(map(*stranger), "NOT_FOUND")) << "a name is its owner's";
  EXPECT_TRUE(failed_with(remove(*stranger), "NOT_FOUND"));
  for (ClientProcess* one : {mate.get(), stranger.get(), writer.get()}) EXPECT_EQ(one->leave(), 0);
  expect_rest();
}

TEST_F(RegionsOfLab, HiddenRegionLooksLikeAMissingRegion) {
  auto stranger = client({}, zoe_);
  const Json before = map(*stranger, {{"owner", "bob"}});
  ASSERT_TRUE(failed_with(before, "NOT_FOUND"));
  auto writer = publisher(mebibytes(2), 7, bob_);
  const Json refused = map(*stranger, {{"owner", "bob"}});
  ASSERT_TRUE(failed_with(refused, "NOT_FOUND"));
  EXPECT_EQ(message(refused), message(before));
  auto mate = client({}, bob_);
  EXPECT_TRUE(succeeded(map(*mate)));
}

TEST_F(RegionsOfLab, AreForThoseWhoAreNamed) {
  auto writer = publisher(mebibytes(2), 7, bob_, {{"sharing", kNamed}, {"readers", {"zoe"}}});
  auto colleague = client({}, ann_), friendly = client({}, zoe_);
  EXPECT_TRUE(failed_with(map(*colleague, {{"owner", "bob"}}), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(map(*friendly, {{"owner", "bob"}})));
  EXPECT_TRUE(succeeded(check(*friendly, 7)));
}

TEST_F(RegionsOfLab, HaveNamesThatNobodyTakesFromAnother) {
  auto squatter = publisher(mebibytes(2), 1, zoe_, {{"sharing", kPublic}});
  auto writer = publisher(mebibytes(2), 7, bob_, {{"sharing", kPublic}});
  auto mate = client({}, bob_);
  ASSERT_TRUE(succeeded(map(*mate)));
  EXPECT_TRUE(succeeded(check(*mate, 7))) << "of its own tenant, whoever was first";
}

}  // namespace
}  // namespace gpumem::test
