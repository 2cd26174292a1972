// Quotas changed while the broker runs: by whom, how far, and for how long.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

constexpr const char* kQuotaTenants = R"(
[[tenant]]
name = "ann"
user = 10001
guarantee = "64MiB"
limit = "128MiB"
[[tenant]]
name = "bob"
user = 10002
[default]
limit = "96MiB"
)";

struct Quotas : BrokerTest {
  Quotas() : BrokerTest({.config = config()}) {}

  static std::string config(const std::string& admins = "") {
    return shared() + (admins.empty() ? "" : "admin_group = " + admins + "\n") + kQuotaTenants;
  }
  Outcome quotas(std::vector<std::string> arguments, std::optional<User> user = {}) const {
    arguments.insert(arguments.begin(), "quota");
    return gpumem(std::move(arguments), user);
  }
  Json json(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Outcome outcome = quotas(std::move(arguments));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return Json::parse(outcome.output, nullptr, false);
  }
  std::filesystem::path state() const { return std::filesystem::path(broker_.folder()) / "private/state"; }
  Json quota(const std::string& tenant) {
    const Json list = json({});
    for (const Json& line : list["quotas"]) {
      if (line["tenant"] == tenant) return line;
    }
    return {};
  }
};

// Only root and the admin group may: tests of other users than root cannot become either.
struct QuotasByRoot : Quotas {
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
};

TEST_F(QuotasByRoot, AreListedWithTheirRevision) {
  const Json list = json({});
  EXPECT_EQ(list["revision"], 0) << list;
  EXPECT_EQ(quota("ann")["limit"], mebibytes(128).count);
  EXPECT_EQ(quota("ann")["set"], false);
  EXPECT_TRUE(says(quotas({}), 0, "revision 0"));
}

TEST_F(QuotasByRoot, ShowInTenantsAtOnceWithTheirFormerValues) {
  const Json change = json({"set", "ann", "--limit", "160MiB", "--weight", "7"});
  EXPECT_EQ(change["revision"], 1) << change;
  EXPECT_EQ(change["before"][0]["limit"], mebibytes(128).count);
  EXPECT_EQ(change["before"][0]["weight"], 100);
  EXPECT_EQ(change["after"][0]["limit"], mebibytes(160).count);
  EXPECT_EQ(change["after"][0]["set"], true);
  EXPECT_EQ(broker_.tenant("ann").limit(), mebibytes(160).count);
  EXPECT_EQ(broker_.tenant("ann").guarantee(), mebibytes(64).count) << "what was not named stays";
  EXPECT_EQ(broker_.tenant("ann").weight(), 7U);
  EXPECT_TRUE(says(quotas({"set", "ann", "--limit", "1.5GiB"}), 1, "more than the pool of 224MiB on gpu0"));
  EXPECT_TRUE(says(quotas({"set", "ann", "--limit", "100%"}), 0, "160MiB -> 224MiB")) << "the pool";
  EXPECT_TRUE(says(quotas({"reset", "ann"}), 0, "224MiB -> 128MiB"));
  EXPECT_EQ(quota("ann")["set"], false);
  const auto revision = json({})["revision"];
  EXPECT_TRUE(says(quotas({"reset", "ann"}), 0, "nothing was set for tenant 'ann': nothing is changed\n"));
  EXPECT_EQ(json({})["revision"], revision);
}

TEST_F(QuotasByRoot, TakeNamesOfUsersWhoAreNoTenants) {
  EXPECT_TRUE(says(quotas({"set", "nobody", "--limit", "32MiB"}), 0, "nobody (uid:65534)"));
  EXPECT_EQ(quota("uid:65534")["limit"], mebibytes(32).count);
  EXPECT_TRUE(says(quotas({"show", "nobody"}), 0, "nobody (uid:65534)"));
  EXPECT_EQ(quotas({"show", "nobody"}).output.find("ann"), std::string::npos);
  EXPECT_TRUE(says(quotas({"show", "eve"}), 1, "tenant 'eve' has no quota of its own"));
  EXPECT_TRUE(says(quotas({"reset", "nobody"}), 0, "32MiB -> 96MiB"));
}

TEST_F(QuotasByRoot, HoldForSessionsThatAreOpen) {
  auto ann = client({}, test_user(10'001));
  EXPECT_TRUE(failed_with(ann->grow("a", mebibytes(130)), "RESOURCE_EXHAUSTED"));
  EXPECT_EQ(quotas({"set", "ann", "--limit", "160MiB", "--device", "gpu0"}).status, 0);
  EXPECT_TRUE(succeeded(ann->grow("a", mebibytes(150)))) << "the slice has no limit of its own";
  EXPECT_EQ(quotas({"set", "ann", "--limit", "100MiB"}).status, 0);
  EXPECT_TRUE(failed_with(ann->grow("a", mebibytes(152)), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(succeeded(ann->shrink("a", mebibytes(40))));
  EXPECT_TRUE(succeeded(ann->grow("a", mebibytes(90))));
}

TEST_F(QuotasByRoot, SurviveTheBrokerAndAReload) {
  EXPECT_EQ(quotas({"set", "ann", "--limit", "100MiB"}).status, 0);
  EXPECT_EQ(quotas({"set", "bob", "--guarantee", "1"}).status, 0);
  broker_.reload(config() + "weight = 3\n");
  EXPECT_EQ(broker_.tenant("ann").limit(), mebibytes(100).count);
  broker_.kill();
  broker_.start_again();
  EXPECT_EQ(broker_.tenant("ann").limit(), mebibytes(100).count);
  EXPECT_EQ(broker_.tenant("bob").guarantee(), mebibytes(2).count) << "a guarantee is rounded up";
  EXPECT_EQ(json({})["revision"], 2);
}

TEST_F(QuotasByRoot, AreRecordedWithTheirAuthor) {
  EXPECT_EQ(quotas({"set", "ann", "--priority", "9"}).status, 0);
  const Json line = Json::parse(read_file(state() / "audit.log"));
  EXPECT_EQ(line["uid"], 0);
  EXPECT_EQ(line["command"], "gpumem");
  EXPECT_EQ(line["revision"], 1);
  EXPECT_EQ(line["before"][0]["priority"], 5);
  EXPECT_EQ(line["after"][0]["priority"], 9);
  EXPECT_TRUE(eventually([&] { return broker_.log().find("priority 5 -> 9") != std::string::npos; }));
}

TEST_F(QuotasByRoot, ImpossibleQuotasChangeNothing) {
  const auto& [refused, words] =
      std::pair{quotas({"set", "bob", "--guarantee", "200MiB"}), "on top of 64MiB"};
  EXPECT_TRUE(says(refused, 1, words));
  EXPECT_TRUE(says(quotas({"set", "ann", "--limit", "32MiB"}), 1, "is more than its limit of 32MiB"));
  EXPECT_TRUE(says(quotas({"set", "ann", "--limit", "1"}), 1, "less than the 2MiB"));
  EXPECT_TRUE(says(quotas({"set", "ann", "--limit=-1GiB"}), 2, "--limit: '-1GiB' is not an amount"));
  EXPECT_TRUE(says(quotas({"set", "ann", "--limit", "99999999999GiB"}), 2, "is more than 2^64-1"));
  EXPECT_TRUE(
      says(quotas({"set", "ann", "--guarantee", "200%"}), 2, "--guarantee: '200%' is more than 100%"));
  EXPECT_TRUE(says(quotas({"set", "ann", "--weight", "0"}), 2, "--weight: 0 is not from 1 to 10000"));
  EXPECT_TRUE(says(quotas({"set", "ann", "--priority", "10"}), 2, "--priority: 10 is not from 0 to 9"));
  EXPECT_TRUE(says(quotas({"set", "ann"}), 2, "nothing is to be changed: give --guarantee, --limit"));
  EXPECT_TRUE(says(quotas({"set", "eve", "--limit", "1GiB"}), 1, "known are: "));
  EXPECT_TRUE(
      says(quotas({"set", "ann", "--limit", "1GiB", "--device", "GPU-x"}), 1, "lends no device 'GPU-x'"));
  const std::string gone = "GPU-00000000-0000-0000-0000-000000000000";
  EXPECT_TRUE(says(quotas({"set", "ann", "--limit", "1GiB", "--device", gone}), 1, "is not lent"));
  EXPECT_EQ(quotas({"set"}).status, 2);
  EXPECT_EQ(json({})["revision"], 0);
  EXPECT_EQ(broker_.tenant("ann").limit(), mebibytes(128).count);
  EXPECT_FALSE(std::filesystem::exists(state() / "quotas.toml"));
}

TEST_F(QuotasByRoot, AreForAdministratorsAlone) {
  const User user = test_user(10'001);
  EXPECT_TRUE(says(quotas({}, user), 1, "root may, and the members of the group"));
  EXPECT_TRUE(
      says(quotas({"set", "ann", "--limit", "224MiB", "--revision", "0"}, user), 1, "user 10001 may not"));
  EXPECT_EQ(broker_.tenant("ann").limit(), mebibytes(128).count);
  broker_.reload(config("10000"));
  EXPECT_TRUE(says(quotas({"set", "ann", "--limit", "224MiB"}, user), 0, "128MiB -> 224MiB"));
  EXPECT_TRUE(says(quotas({"set", "ann", "--limit", "200MiB"}, User{10'009, 10'000}), 0, "revision 2"));
  broker_.reload(config("10099"));
  EXPECT_EQ(quotas({}, user).status, 1) << "a group that the user lacks";
}

TEST_F(QuotasByRoot, BrokenQuotaFileStopsTheStart) {
  EXPECT_EQ(quotas({"set", "ann", "--limit", "100MiB"}).status, 0);
  broker_.stop();
  write_file(state() / "quotas.toml", "revision = 1\n[[ten");
  const Outcome outcome = run({.program = gpumemd_program(),
                               .arguments = {"--simulate", "1x256MiB", "--runtime-dir", broker_.folder(),
                                             "--config", broker_.config_file()},
                               .environment = {},
                               .user = {}});
  EXPECT_TRUE(says(outcome, 1, "quotas.toml:2:"));
  EXPECT_TRUE(says(outcome, 1, "mend the file, or move it away"));
  std::filesystem::remove(state() / "quotas.toml");
  broker_.start_again();
  EXPECT_EQ(broker_.tenant("ann").limit(), mebibytes(128).count);
}

}  // namespace
}  // namespace gpumem::test
