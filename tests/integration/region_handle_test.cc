// Handles of regions: by the library, by frames and by gRPC, for whoever may map the region.
#include "tests/integration/region_fixture.h"
#include "tests/support/frame_lane.h"
#include "tests/support/session_stream.h"

namespace gpumem::test {
namespace {

Json name_region(ClientProcess& client, Json more = Json::object()) {
  Json command{{"do", "export_region"}, {"region", "weights"}, {"uses", 100}};
  command.update(more);
  return client.ask(command);
}
Json redeem(ClientProcess& client, const Json& handle) {
  return client.ask({{"do", "import"}, {"handle", handle}, {"import", "i"}});
}
lane::HandleBytes bytes_of(const Json& handle) {
  lane::HandleBytes bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(handle.at(i).get<int>());
  return bytes;
}

struct RegionHandle : RegionTest {};

TEST_F(RegionHandle, MapsTheRegionForReading) {
  auto writer = publisher(mebibytes(6), 7);
  auto reader = client();
  const Json named = name_region(*writer);
  ASSERT_TRUE(succeeded(named));
  const Json mapped = redeem(*reader, named["handle"]);
  ASSERT_TRUE(succeeded(mapped));
  EXPECT_EQ(mapped["bytes"], mebibytes(6).count);
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count) << "charged once";
  reader->tell({{"do", "store"}});
  EXPECT_EQ(reader->child().wait(), -SIGSEGV);
  EXPECT_TRUE(succeeded(writer->check("a", 7)));
  EXPECT_EQ(writer->leave(), 0);
  expect_rest();
}

TEST_F(RegionHandle, NamesOneVersionAndEndsWithIt) {
  auto writer = publisher(mebibytes(2), 7);
  const Json first = name_region(*writer);
  ASSERT_TRUE(succeeded(writer->open("b")));
  ASSERT_TRUE(succeeded(writer->grow("b", mebibytes(2))));
  ASSERT_TRUE(succeeded(writer->write("b", 8)));
  ASSERT_TRUE(succeeded(publish(*writer, {{"slice", "b"}})));
  auto reader = client();
  ASSERT_TRUE(succeeded(redeem(*reader, first["handle"])));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  ASSERT_TRUE(succeeded(redeem(*reader, name_region(*writer)["handle"])));
  EXPECT_TRUE(succeeded(check(*reader, 8))) << "the newest";
  ASSERT_TRUE(succeeded(remove(*writer)));
  ASSERT_TRUE(succeeded(redeem(*reader, first["handle"]))) << "the older version is there";
  ASSERT_TRUE(succeeded(remove(*writer)));
  auto late = client();
  EXPECT_TRUE(failed_with(redeem(*late, first["handle"]), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(check(*reader, 7))) << "what is mapped stays";
  EXPECT_TRUE(failed_with(name_region(*writer), "NOT_FOUND"));
}

TEST_F(RegionHandle, EndsWithTheSessionThatMadeItAndGoesOnWithTheNextBroker) {
  auto writer = publisher(mebibytes(2), 7);
  auto passer = client(), reader = client();
  const Json of_writer = name_region(*writer), of_passer = name_region(*passer);
  ASSERT_TRUE(succeeded(of_passer)) << "whoever may map it may name it";
  ASSERT_EQ(broker_.upgrade().status, 0);
  ASSERT_TRUE(succeeded(redeem(*reader, of_passer["handle"])));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_EQ(passer->leave(), 0);
  EXPECT_TRUE(failed_with(redeem(*reader, of_passer["handle"]), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(redeem(*reader, of_writer["handle"])));
}

TEST_F(RegionHandle, IsMadeByGrpcAndRedeemedOnALane) {
  auto writer = publisher(mebibytes(2), 7);
  SessionStream stream(broker_.folder());
  stream.open();
  v1::SessionRequest request;
  request.mutable_export_region()->set_name("weights");
  request.mutable_export_region()->set_uses(2);
  const v1::SessionAnswer answer = stream.ask(request);
  const std::string& handle = answer.handle_exported().handle();
  ASSERT_EQ(handle.size(), 64U) << answer.DebugString();
  EXPECT_LE(answer.handle_exported().within_ms(), 60'000U);
  auto reader = client();
  const Json bytes(std::vector<int>(handle.begin(), handle.end()));
  ASSERT_TRUE(succeeded(redeem(*reader, bytes)));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  request.mutable_map_handle()->set_handle(handle);
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::FAILED_PRECONDITION);
  request.mutable_export_region()->set_name("other");
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::NOT_FOUND);
  request.mutable_export_region()->set_name(std::string(200, 'x'));
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_export_region()->set_name("weights");
  request.mutable_export_region()->set_life_ms(25 * 3'600'000);
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_revoke_handle()->set_handle(handle);
  EXPECT_TRUE(stream.ask(request).has_done());
  EXPECT_TRUE(failed_with(redeem(*reader, bytes), "NOT_FOUND"));
}

TEST_F(RegionHandle, IsRedeemedAsARegionOnly) {
  auto writer = publisher(mebibytes(2), 7);
  const lane::HandleBytes handle = bytes_of(name_region(*writer)["handle"]);
  FrameLane redeemer(broker_.folder());
  redeemer.greet();
  const auto refused = redeemer.ask(lane::ImportHandle{handle});
  ASSERT_TRUE(refused.is(lane::Kind::kFailed));
  EXPECT_EQ(refused.as<lane::Failed>().code, static_cast<std::uint64_t>(Code::kFailedPrecondition));
  const auto mapped = redeemer.ask(lane::MapHandle{handle});
  ASSERT_TRUE(mapped.is(lane::Kind::kRegionMapped));
  EXPECT_EQ(mapped.descriptors.size(), mapped.as<lane::RegionMapped>().count);
  EXPECT_EQ(mapped.as<lane::RegionMapped>().bytes, mebibytes(2).count);
  EXPECT_TRUE(redeemer.ask(lane::MapHandle{}).is(lane::Kind::kFailed));
}

struct RegionHandlesOfLab : RegionsOfLab {};

TEST_F(RegionHandlesOfLab, AreForWhomTheRegionIsSharedWith) {
  auto writer = publisher(mebibytes(2), 7, ann_, {{"sharing", kGroup}});
  auto bob = client({}, bob_), zoe = client({}, zoe_);
  const Json named = name_region(*writer);
  ASSERT_TRUE(succeeded(redeem(*bob, named["handle"]))) << "another tenant, as by its name";
  EXPECT_TRUE(succeeded(check(*bob, 7)));
  const Json refused = redeem(*zoe, named["handle"]);
  EXPECT_TRUE(failed_with(refused, "NOT_FOUND"));
  Json guessed = named["handle"];
  guessed[60] = guessed[60].get<int>() ^ 1;
  EXPECT_EQ(message(redeem(*zoe, guessed)), message(refused)) << "as if there were none";
  EXPECT_TRUE(failed_with(name_region(*zoe, {{"owner", "ann"}}), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(name_region(*bob, {{"owner", "ann"}})));
}

}  // namespace
}  // namespace gpumem::test
