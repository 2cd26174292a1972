// Several tenants on one device: guarantees, limits, and who may come in at all.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

constexpr const char* kTenants = R"(
[[tenant]]
name = "ann"
user = 10001
guarantee = "64MiB"
limit = "128MiB"
[[tenant]]
name = "bob"
user = "10002"
[[tenant]]
name = "team"
group = 10000
limit = "50%"
[default]
refuse = true
)";

struct Tenants : BrokerTest {
  Tenants() : BrokerTest({.config = shared(kTenants)}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(Tenants, HaveTheirGuaranteeWhileAnotherBursts) {
  auto bob = client({}, kBob);
  const Json most = bob->grow("a", kPool - mebibytes(62));
  EXPECT_TRUE(failed_with(most, "RESOURCE_EXHAUSTED"));
  EXPECT_EQ(most["denial"]["reason"], 3) << "the rest of the pool is guaranteed to ann: " << most;
  EXPECT_TRUE(succeeded(bob->grow("a", kPool - mebibytes(64))));
  EXPECT_TRUE(succeeded(bob->write("a", 0xbb)));
  auto ann = client({}, kAnn);
  EXPECT_TRUE(succeeded(ann->grow("a", mebibytes(64)))) << "without waiting";
  EXPECT_TRUE(succeeded(ann->check("a", 0)));
  EXPECT_TRUE(failed_with(ann->grow("a", mebibytes(66)), "RESOURCE_EXHAUSTED")) << "nothing is left";
}

TEST_F(Tenants, AreFoundByTheNamesOfTheirUsers) {
  ClientProcess bin(broker_.folder(), {.user = test_user(2)});  // Debian's uid of `bin`, a member of the team
  ASSERT_EQ(bin.connect()["tenant"], "team");
  const Outcome why = gpumem({"why", "bin"});
  EXPECT_NE(why.output.find("team"), std::string::npos) << why.output;
}

TEST_F(Tenants, NeverPassTheirLimitEvenWhereAllIsFree) {
  auto ann = client({}, kAnn);
  const Json answer = ann->grow("a", mebibytes(130));
  EXPECT_TRUE(failed_with(answer, "RESOURCE_EXHAUSTED"));
  EXPECT_EQ(answer["denial"]["reason"], 2) << "and the tenant's limit is named, not the slice's: " << answer;
  EXPECT_TRUE(succeeded(ann->grow("a", mebibytes(128))));
  EXPECT_TRUE(succeeded(ann->open("b")));
  EXPECT_TRUE(failed_with(ann->grow("b", mebibytes(2)), "RESOURCE_EXHAUSTED"));
}

TEST_F(Tenants, AreFoundByUserFirstAndThenByGroup) {
  ClientProcess eve(broker_.folder(), {.user = kCat});
  EXPECT_EQ(eve.connect()["tenant"], "team");
  ClientProcess ann(broker_.folder(), {.user = kAnn});
  EXPECT_EQ(ann.connect()["tenant"], "ann");
  EXPECT_TRUE(succeeded(eve.open("a")));
  EXPECT_TRUE(failed_with(eve.grow("a", Bytes{kPool.count / 2} + mebibytes(2)), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(succeeded(eve.grow("a", Bytes{kPool.count / 2}))) << "50% of the pool";
}

TEST_F(Tenants, AloneMayConnectWhereOtherUsersAreRefused) {
  ClientProcess root(broker_.folder());
  const Json answer = root.connect();
  EXPECT_TRUE(failed_with(answer, "PERMISSION_DENIED"));
  EXPECT_NE(answer["message"].get<std::string>().find("uid:0"), std::string::npos) << answer;
  EXPECT_EQ(broker_.status().sessions(), 0U);
}

TEST_F(Tenants, OutsideTheSocketsGroupAreToldSo) {
  ClientProcess stranger(broker_.folder(), {.user = User{10'001, 10'099}});
  const Json answer = stranger.connect();
  EXPECT_TRUE(failed_with(answer, "PERMISSION_DENIED"));
  EXPECT_NE(answer["message"].get<std::string>().find("10000"), std::string::npos) << answer;
}

TEST_F(Tenants, AreChargedSeparately) {
  auto ann = client_with(mebibytes(32), kAnn);
  auto bob = client_with(mebibytes(16), kBob);
  EXPECT_EQ(broker_.tenant("ann").charged(), mebibytes(32).count);
  EXPECT_EQ(broker_.tenant("ann").sessions(), 1U);
  EXPECT_EQ(broker_.tenant("bob").charged(), mebibytes(16).count);
  const Json figures = ann->ask({{"do", "usage"}})["devices"][0];
  EXPECT_EQ(figures["guarantee"], mebibytes(64).count);
  EXPECT_EQ(figures["limit"], mebibytes(128).count);
  EXPECT_EQ(figures["charged"], mebibytes(32).count);
  ann->kill();
  EXPECT_TRUE(eventually([&] { return broker_.tenant("ann").charged() == 0; }));
  EXPECT_EQ(broker_.tenant("bob").charged(), mebibytes(16).count);
}

}  // namespace
}  // namespace gpumem::test
