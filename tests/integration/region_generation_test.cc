// Regions whose content changes: committed by one process, followed by others.
#include "tests/integration/region_fixture.h"
#include "tests/support/frame_lane.h"
#include "tests/support/session_stream.h"

namespace gpumem::test {
namespace {

struct RegionGeneration : RegionTest {
  static Json commit(ClientProcess& client, const std::string& import = "i") {
    return client.ask({{"do", "commit"}, {"import", import}});
  }
  static Json await(std::uint64_t after, int wait_ms = 120'000) {
    return {{"do", "generation"}, {"import", "i"}, {"after", after}, {"wait_ms", wait_ms}};
  }
};

TEST_F(RegionGeneration, IsToldToReadersThatWait) {
  auto writer = publisher(mebibytes(2), 7);
  auto reader = client(), partner = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  ASSERT_TRUE(succeeded(map(*partner, {{"writable", true}})));
  EXPECT_EQ(reader->ask(await(0, 0))["generation"], 0);
  reader->tell(await(0));
  EXPECT_TRUE(succeeded(partner->ask({{"do", "write"}, {"import", "i"}, {"value", 8}})));
  EXPECT_EQ(commit(*partner)["generation"], 1);
  EXPECT_EQ(reader->answer()["generation"], 1);
  EXPECT_TRUE(succeeded(check(*reader, 8)));
  EXPECT_EQ(writer->ask({{"do", "commit"}, {"slice", "a"}})["generation"], 2) << "its publisher, too";
  EXPECT_EQ(reader->ask(await(1))["generation"], 2);
  EXPECT_TRUE(failed_with(reader->ask(await(2, 1)), "DEADLINE_EXCEEDED"));
  EXPECT_TRUE(failed_with(commit(*reader), "FAILED_PRECONDITION")) << "it is mapped for reading";
}

TEST_F(RegionGeneration, IsFollowedUntilTheRegionEnds) {
  auto writer = publisher(mebibytes(2), 7);
  auto reader = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  reader->tell(await(0));
  EXPECT_TRUE(succeeded(remove(*writer)));
  EXPECT_TRUE(failed_with(reader->answer(), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(check(*reader, 7))) << "what is mapped stays";
}

TEST_F(RegionGeneration, GoesOnWithTheNextBroker) {
  auto writer = publisher(mebibytes(2), 7);
  auto reader = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  EXPECT_EQ(writer->ask({{"do", "commit"}, {"slice", "a"}})["generation"], 1);
  reader->tell(await(1));
  ASSERT_EQ(broker_.upgrade().status, 0);
  EXPECT_EQ(writer->ask({{"do", "commit"}, {"slice", "a"}})["generation"], 2);
  EXPECT_EQ(reader->answer()["generation"], 2);
}

TEST_F(RegionGeneration, IsCalledOff) {
  auto writer = publisher(mebibytes(2), 7);
  FrameLane reader(broker_.folder());
  reader.greet();
  const auto mapped = reader.ask(lane::MapRegion{{}, lane::RegionName::of("weights"), 0, {}, 0});
  const std::uint64_t version = mapped.as<lane::RegionMapped>().version;
  const std::uint64_t number = reader.send(lane::AwaitGeneration{version, 0, ~std::uint64_t{0}});
  EXPECT_TRUE(reader.receive().is(lane::Kind::kWaiting));
  reader.send(lane::Cancel{number});
  const auto cancelled = reader.receive();
  EXPECT_EQ(cancelled.as<lane::Failed>().code, static_cast<std::uint64_t>(Code::kCancelled));
}

TEST_F(RegionGeneration, IsTheSameByGrpc) {
  auto writer = publisher(mebibytes(2), 7);
  auto reader = client();
  const std::uint64_t version = map(*reader)["version"];
  SessionStream stream(broker_.folder());
  stream.open();
  v1::SessionRequest request;
  request.mutable_commit_region()->set_version(version);
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::FAILED_PRECONDITION) << "it has it not";
  request.mutable_await_generation()->set_version(version);
  EXPECT_EQ(stream.ask(request).generation().generation(), 0U);
  EXPECT_TRUE(succeeded(writer->ask({{"do", "commit"}, {"slice", "a"}})));
  request.mutable_await_generation()->set_wait_ms(60'000);
  EXPECT_EQ(stream.ask(request).generation().generation(), 1U);
  request.mutable_await_generation()->set_after(1);
  request.mutable_await_generation()->set_wait_ms(1);
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace gpumem::test
