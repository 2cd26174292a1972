// Regions whose charge is shared, by real processes: who pays while they come, go and die.
#include "client/cli/monitor.h"
#include "tests/integration/region_fixture.h"
#include "tests/support/session_stream.h"

namespace gpumem::test {
namespace {

const Json kSharedCharge{{"sharing", kPublic}, {"charging", 1}};
constexpr std::uint64_t kMiB = mebibytes(1).count;

// Parts are rounded to bytes, of each extent.
bool is_about(std::uint64_t bytes, std::uint64_t mebibytes) {
  constexpr std::uint64_t kRounding = 64;
  return bytes + kRounding >= mebibytes * kMiB && bytes <= mebibytes * kMiB + kRounding;
}

// Of kLab, and one who may have little.
struct RegionShares : RegionsOfLab {
  RegionShares() : RegionsOfLab("[[tenant]]\nname = \"low\"\nuser = 10004\nlimit = \"2MiB\"\n") {}
  Json read(ClientProcess& client) { return map(client, {{"owner", "bob"}}); }
  /// Waits until each of bob, ann, zoe and low pays so many MiB.
  void expect_paid(const std::vector<std::uint64_t>& mebibytes) {
    const char* const tenants[] = {"bob", "ann", "zoe", "low"};
    for (std::size_t i = 0; i < mebibytes.size(); ++i) {
      EXPECT_TRUE(eventually([&] { return is_about(broker_.tenant(tenants[i]).charged(), mebibytes[i]); }))
          << tenants[i] << " pays " << broker_.tenant(tenants[i]).charged() / kMiB << " MiB";
    }
  }
  const User low_ = test_user(10'004);
};

TEST_F(RegionShares, FollowThoseWhoMapUnmapAndAreKilled) {
  auto writer = publisher(mebibytes(12), 7, bob_, kSharedCharge);
  auto colleague = client({}, ann_), stranger = client({}, zoe_);
  expect_paid({12, 0, 0});
  ASSERT_TRUE(succeeded(read(*stranger)));
  expect_paid({6, 0, 6});
  ASSERT_TRUE(succeeded(read(*colleague)));
  expect_paid({4, 4, 4});
  EXPECT_TRUE(is_about(broker_.tenant("zoe").region_shares(), 4));
  EXPECT_TRUE(is_about(broker_.tenant("bob").paid_by_others(), 8));
  EXPECT_TRUE(is_about(broker_.tenant("lab").charged(), 8));
  EXPECT_EQ(broker_.tenant("lab").charged() + broker_.tenant("zoe").charged(), 12 * kMiB) << "to the byte";
  ASSERT_TRUE(succeeded(unmap(*stranger)));
  expect_paid({6, 6, 0});
  ASSERT_TRUE(succeeded(read(*stranger)));
  writer->kill();
  expect_paid({0, 6, 6});
  EXPECT_TRUE(succeeded(check(*colleague, 7)));
  colleague->kill();
  expect_paid({0, 0, 12});
  EXPECT_TRUE(succeeded(check(*stranger, 7)));
  EXPECT_EQ(stranger->leave(), 0);
  expect_rest();
}

TEST_F(RegionShares, AreRefusedWhereALimitHasNoRoom) {
  auto writer = publisher(mebibytes(12), 7, bob_, kSharedCharge);
  auto poor = client({}, low_);
  const Json refused = read(*poor);
  EXPECT_TRUE(failed_with(refused, "RESOURCE_EXHAUSTED"));
  EXPECT_NE(message(refused).find("the limit of tenant 'low'"), std::string::npos) << message(refused);
  expect_paid({12, 0, 0, 0});
  EXPECT_TRUE(failed_with(publish(*writer, {{"charging", 0}}), "FAILED_PRECONDITION"));
}

TEST_F(RegionShares, GoOnWithAnUpgradedBroker) {
  auto writer = publisher(mebibytes(12), 7, bob_, kSharedCharge);
  auto stranger = client({}, zoe_);
  ASSERT_TRUE(succeeded(read(*stranger)));
  ASSERT_EQ(broker_.upgrade().status, 0);
  expect_paid({6, 0, 6});
  auto colleague = client({}, ann_);
  ASSERT_TRUE(succeeded(read(*colleague)));
  expect_paid({4, 4, 4});
}

TEST_F(RegionShares, OfAKilledBrokerAreTheSameAtTheNext) {
  auto writer = publisher(mebibytes(12), 7, bob_, kSharedCharge);
  auto stranger = client({}, zoe_);
  ASSERT_TRUE(succeeded(read(*stranger)));
  broker_.kill();
  broker_.start_again();
  expect_paid({6, 0, 6});
  ASSERT_TRUE(succeeded(stranger->ask({{"do", "ping"}})));
  ASSERT_TRUE(succeeded(unmap(*stranger)));
  expect_paid({12, 0, 0});
}

TEST_F(RegionShares, OfAKeptRegionArePaidByItsTenantToo) {
  Json kept = kSharedCharge;
  kept["keep"] = true;
  auto writer = publisher(mebibytes(12), 7, bob_, kept);
  auto stranger = client({}, zoe_);
  ASSERT_TRUE(succeeded(read(*stranger)));
  EXPECT_EQ(writer->leave(), 0);
  expect_paid({6, 0, 6});
  auto mate = client({}, bob_);
  ASSERT_TRUE(succeeded(remove(*mate)));
  expect_paid({0, 0, 12});
  EXPECT_EQ(stranger->leave(), 0);
  EXPECT_EQ(mate->leave(), 0);
  expect_rest();
}

struct RegionSharesByGrpc : RegionTest {
  RegionSharesByGrpc() : RegionTest({.config = kSomeSpare}) {}
};

TEST_F(RegionSharesByGrpc, AreAskedForAndListed) {
  SessionStream stream(broker_.folder());
  stream.open();
  const std::uint64_t slice = stream.open_slice();
  const v1::SessionAnswer granted = stream.ask(growth(slice, mebibytes(4)));
  ASSERT_TRUE(granted.has_granted());
  EXPECT_TRUE(eventually([&] { return broker_.device().active() == mebibytes(4).count; }));
  v1::SessionRequest request;
  request.mutable_publish()->set_name("weights");
  request.mutable_publish()->set_slice(slice);
  request.mutable_publish()->set_charging(v1::CHARGING_SHARED);
  for (const v1::Lease& lease : granted.granted().leases()) request.mutable_publish()->add_leases(lease.id());
  ASSERT_TRUE(stream.ask(request).has_published());
  auto monitor = cli::Monitor::connect(broker_.folder());
  ASSERT_TRUE(monitor);
  const auto regions = monitor->regions("");
  ASSERT_TRUE(regions);
  ASSERT_EQ(regions->regions_size(), 1);
  EXPECT_EQ(regions->regions(0).charging(), v1::CHARGING_SHARED);
  request.mutable_publish()->set_charging(static_cast<v1::Charging>(7));
  EXPECT_EQ(stream.ask(request).failed().code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace gpumem::test
