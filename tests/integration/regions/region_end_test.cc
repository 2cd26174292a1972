// What becomes of a region when a process or the broker dies.
#include "tests/integration/regions/region_fixture.h"

namespace gpumem::test {
namespace {

struct RegionEnd : RegionTest {
  void await_sessions(std::size_t count) {
    EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == count; }));
  }
};

TEST_F(RegionEnd, KilledPublishersRegionPassesToAReaderOfItsTenant) {
  auto writer = publisher(mebibytes(6), 7);
  auto reader = client(), late = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  writer->kill();
  await_sessions(2);
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count);
  EXPECT_EQ(broker_.sessions().at(0).shared(0).charged(), mebibytes(6).count) << "the reader's now";
  EXPECT_TRUE(succeeded(map(*late))) << "and the region goes on";
  EXPECT_TRUE(succeeded(check(*late, 7)));
  reader->kill();
  await_sessions(1);
  EXPECT_EQ(broker_.sessions().at(0).shared(0).charged(), mebibytes(6).count);
  EXPECT_TRUE(succeeded(check(*late, 7)));
  expect_rest_after(*late);
}

TEST_F(RegionEnd, RegionWithoutReadersEndsWithItsPublisher) {
  auto writer = publisher(mebibytes(6), 7);
  auto reader = client();
  writer->kill();
  await_sessions(1);
  EXPECT_TRUE(failed_with(map(*reader), "NOT_FOUND"));
  expect_rest_after(*reader);
}

TEST_F(RegionEnd, KilledReaderDoesNotEndTheRegion) {
  auto writer = publisher(mebibytes(6), 7);
  auto reader = client(), next = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  reader->kill();
  await_sessions(2);
  EXPECT_TRUE(succeeded(map(*next)));
  EXPECT_TRUE(succeeded(check(*next, 7)));
  EXPECT_TRUE(succeeded(writer->check("a", 7)));
  expect_rest_after(*next, *writer);
}

TEST_F(RegionEnd, KeptRegionOutlivesItsPublisher) {
  auto writer = publisher(mebibytes(6), 7, {}, {{"keep", true}});
  const std::uint64_t number = broker_.sessions().at(0).id();
  writer->kill();
  EXPECT_TRUE(eventually([&] {
    const auto sessions = broker_.sessions();
    return sessions.size() == 1 && sessions.at(0).detached() && sessions.at(0).id() != number;
  }));
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count);
  auto reader = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  ASSERT_TRUE(succeeded(unmap(*reader)));
  ASSERT_TRUE(succeeded(map(*reader, {{"adopt", true}})));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  expect_rest_after(*reader);
}

TEST_F(RegionEnd, KeptRegionEndsWhenItIsRemoved) {
  auto writer = publisher(mebibytes(6), 7, {}, {{"keep", true}});
  EXPECT_EQ(writer->leave(), 0);
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count);
  auto other = client();
  ASSERT_TRUE(succeeded(remove(*other)));
  EXPECT_TRUE(failed_with(map(*other), "NOT_FOUND"));
  expect_rest_after(*other);
}

TEST_F(RegionEnd, RegionSurvivesABrokerThatPassesItsDescriptorsOn) {
  auto writer = publisher(mebibytes(6), 7, {}, {{"layout", 4096}, {"digest", 9}});
  auto reader = client();
  const Json before = map(*reader);
  ASSERT_TRUE(succeeded(before));
  ASSERT_EQ(broker_.upgrade().status, 0);
  auto late = client();
  EXPECT_EQ(map(*late), before) << "the same version, layout and digest";
  EXPECT_TRUE(succeeded(check(*late, 7)));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_TRUE(succeeded(reader->ask({{"do", "ping"}})));
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count);
  const Json next = publish(*writer);
  ASSERT_TRUE(succeeded(next));
  EXPECT_GT(next["version"], before["version"]);
  EXPECT_TRUE(succeeded(unmap(*reader))) << "what it had mapped before";
  for (ClientProcess* one : {reader.get(), late.get(), writer.get()}) EXPECT_EQ(one->leave(), 0);
  expect_rest();
}

TEST_F(RegionEnd, RegionOfAPublisherKilledWithTheBrokerPassesToItsReader) {
  auto writer = publisher(mebibytes(6), 7);
  auto reader = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  broker_.kill();
  writer->kill();
  broker_.start_again();
  EXPECT_TRUE(succeeded(reader->ask({{"do", "ping"}})));
  EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 1; }));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_EQ(broker_.sessions().at(0).shared(0).charged(), mebibytes(6).count);
  expect_rest_after(*reader);
}

// Its descriptors end with it: the next one cannot hand the memory on. What is mapped stays.
TEST_F(RegionEnd, RegionEndsWithAKilledBrokerAndMappingsStay) {
  auto writer = publisher(mebibytes(6), 7);
  auto reader = client();
  ASSERT_TRUE(succeeded(map(*reader)));
  broker_.kill();
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  broker_.start_again();
  auto late = client();
  EXPECT_TRUE(failed_with(map(*late), "NOT_FOUND"));
  EXPECT_TRUE(succeeded(reader->ask({{"do", "ping"}})));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count);
  EXPECT_TRUE(failed_with(publish(*writer), "FAILED_PRECONDITION"));
  EXPECT_TRUE(succeeded(writer->shrink("a", {})));
  EXPECT_EQ(writer->leave(), 0);
  EXPECT_EQ(broker_.device().active(), mebibytes(6).count) << "the reader's";
  EXPECT_TRUE(succeeded(unmap(*reader))) << "what it had mapped before";
  expect_rest_after(*reader, *late);
}

TEST_F(RegionEnd, CallWithoutABrokerMapsAtTheNextBroker) {
  auto reader = client();
  broker_.kill();
  reader->tell({{"do", "map_region"}, {"region", "weights"}});
  broker_.start_again();
  EXPECT_TRUE(failed_with(reader->answer(), "NOT_FOUND")) << "asked of the next broker";
  auto writer = publisher(mebibytes(6), 7);
  ASSERT_TRUE(succeeded(map(*reader)));
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  expect_rest_after(*reader, *writer);
}

// The broker dies when it has told the reader that it waits.
struct RegionEndOfAWaitsBroker : RegionTest, testing::WithParamInterface<bool> {
  RegionEndOfAWaitsBroker()
      : RegionTest({.config = kSomeSpare, .environment = {{"GPUMEM_CRASH_POINT", "broker.region.waits"}}}) {}
};

TEST_P(RegionEndOfAWaitsBroker, WaitSurvivesTheEndOfItsBroker) {
  auto reader = client();
  Json wait{{"do", "map_region"}, {"region", "weights"}, {"wait_ms", 60'000}};
  if (GetParam()) wait["device"] = broker_.device().uuid();
  reader->tell(wait);
  EXPECT_EQ(broker_.wait(), -SIGKILL);
  broker_.start_again_in({});
  auto writer = publisher(mebibytes(6), 7);
  EXPECT_TRUE(succeeded(reader->answer())) << "the library has asked the next one";
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  expect_rest_after(*reader, *writer);
}
INSTANTIATE_TEST_SUITE_P(OfADevice, RegionEndOfAWaitsBroker, testing::Values(false, true));

// ---- Several tenants ----

struct RegionEndOfLab : RegionsOfLab {};

TEST_F(RegionEndOfLab, ChargesAReaderOfAnotherTenantAndEndsTheRegion) {
  auto writer = publisher(mebibytes(6), 7, bob_, {{"sharing", kPublic}});
  auto reader = client({}, zoe_), late = client({}, zoe_);
  ASSERT_TRUE(succeeded(map(*reader, {{"owner", "bob"}})));
  writer->kill();
  EXPECT_TRUE(eventually([&] { return broker_.tenant("zoe").charged() == mebibytes(6).count; }));
  EXPECT_EQ(broker_.tenant("bob").charged(), 0U);
  EXPECT_TRUE(succeeded(check(*reader, 7)));
  EXPECT_TRUE(failed_with(map(*late, {{"owner", "bob"}}), "NOT_FOUND"));
  EXPECT_TRUE(failed_with(map(*late, {{"owner", "zoe"}}), "NOT_FOUND")) << "the reader did not publish it";
  EXPECT_TRUE(succeeded(unmap(*reader)));
  EXPECT_TRUE(eventually([&] { return broker_.tenant("zoe").charged() == 0; }));
  expect_rest_after(*reader, *late);
}

}  // namespace
}  // namespace gpumem::test
