// Changes of quotas and of the configuration, one after another, each as a whole or not at all.
#include "daemon/host/config/live_quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "daemon/host/config/accounts.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

using testing::HasSubstr;

constexpr const char* kConfig = R"([broker]
reserve = "8GiB"
[[tenant]]
name = "ann"
user = 1001
guarantee = "2GiB"
limit = "4GiB"
[[tenant]]
name = "lab"
[default]
parent = "lab"
limit = "50%"
)";

// A core that takes every policy, unless it is told not to; one user without a tenant is connected.
struct FakeCore {
  std::vector<core::Policy> applied;
  std::vector<std::string> causes;
  std::optional<Error> refuse;
  std::function<void()> meanwhile = [] {};

  Result<void> apply(core::Policy policy, std::string cause) {
    meanwhile();
    if (refuse) return *refuse;
    applied.push_back(std::move(policy));
    causes.push_back(std::move(cause));
    return {};
  }
  std::vector<core::TenantView> tenants() const {
    std::vector<core::TenantView> views(3);
    views[0].name = "ann";
    views[0].quota = {gibibytes(2), gibibytes(4)};
    views[1].name = "lab";
    views[2].name = "uid:987654";
    views[2].parent = "lab";
    return views;
  }
};

struct LiveQuotasTest : testing::Test {
  LiveQuotasTest() { start(); }

  static Config config(const std::string& text) {
    auto config = parse_config(text, "g.toml");
    EXPECT_TRUE(config) << config.error().message;
    if (config) look_up(*config);
    return config ? *config : Config{};
  }
  void start() {
    DeviceFacts facts;
    facts.device.uuid.bytes.fill(1);
    facts.device.total = gibibytes(16);
    facts.device.granularity = mebibytes(2);
    uuid = to_string(facts.device.uuid);
    quotas.reset();  // the folder has one owner
    auto store = QuotaStore::open(folder / "state", "now");
    ASSERT_TRUE(store) << store.error().message;
    quotas = std::make_unique<LiveQuotas>(
        LiveQuotas::Options{config(kConfig),
                            {facts},
                            std::move(*store),
                            {[this](core::Policy policy, std::string cause) {
                               return core.apply(std::move(policy), std::move(cause));
                             },
                             [this] { return core.tenants(); }}});
  }
  core::QuotaChange limit(const std::string& tenant, const std::string& amount, std::uint64_t revision = 0) {
    core::QuotaChange change;
    change.tenant = tenant;
    change.limit = amount;
    change.revision = revision;
    return change;
  }
  std::string refused(const core::QuotaChange& change, Code code) {
    auto outcome = quotas->set_now(change, admin);
    if (outcome) {
      ADD_FAILURE() << "taken";
      return {};
    }
    EXPECT_EQ(outcome.error().code, code) << outcome.error().message;
    return outcome.error().message;
  }
  std::uint64_t revision() { return quotas->list_now()->revision; }
  std::string kept() const { return test::read_file(folder / "state" / "quotas.toml"); }

  const core::Caller admin{{.pid = 7, .uid = 42, .gids = {}, .command = "gpumem"}, "", true};
  test::TemporaryFolder folder;
  FakeCore core;
  std::string uuid;
  std::unique_ptr<LiveQuotas> quotas;
};

TEST_F(LiveQuotasTest, AreChangedInTheCoreAndOnTheDisk) {
  auto outcome = quotas->set_now(limit("ann", "8GiB"), admin);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->revision, 1U);
  ASSERT_EQ(outcome->before.size(), 1U);
  EXPECT_EQ(outcome->before[0].quota.limit, gibibytes(4));
  EXPECT_FALSE(outcome->before[0].set_at_run_time);
  EXPECT_EQ(outcome->after[0].quota.limit, gibibytes(8));
  EXPECT_EQ(outcome->after[0].quota.guarantee, gibibytes(2));
  EXPECT_TRUE(outcome->after[0].set_at_run_time);
  ASSERT_EQ(core.applied.size(), 1U);
  EXPECT_EQ(core.applied[0].tenants[0].quotas[0].limit, gibibytes(8));
  EXPECT_THAT(core.causes[0], AllOf(HasSubstr("'ann'"), HasSubstr("limit 4GiB -> 8GiB on " + uuid),
                                    HasSubstr("uid 42, pid 7, gpumem")));
  EXPECT_THAT(kept(), HasSubstr("8GiB"));
}

TEST_F(LiveQuotasTest, AreOnTheDiskBeforeTheyAreInTheCoreButNotInForceThere) {
  core.meanwhile = [this] {
    EXPECT_TRUE(std::filesystem::exists(folder / "state" / "quotas.toml.new"));
    EXPECT_FALSE(std::filesystem::exists(folder / "state" / "quotas.toml"));
    EXPECT_THAT(test::read_file(folder / "state" / "audit.log"), HasSubstr("\"revision\":1"));
  };
  ASSERT_TRUE(quotas->set_now(limit("ann", "8GiB"), admin));
}

TEST_F(LiveQuotasTest, AreListedWithTheirOverlay) {
  ASSERT_TRUE(quotas->set_now(limit("uid:987654", "1GiB"), admin));
  const auto list = quotas->list_now();
  ASSERT_TRUE(list);
  EXPECT_EQ(list->revision, 1U);
  ASSERT_EQ(list->quotas.size(), 3U);
  EXPECT_EQ(list->quotas[0].tenant, "ann");
  EXPECT_EQ(list->quotas[0].device, uuid);
  EXPECT_FALSE(list->quotas[0].set_at_run_time);
  EXPECT_EQ(list->quotas[2].parent, "lab");
  EXPECT_TRUE(list->quotas[2].set_at_run_time);
}

TEST_F(LiveQuotasTest, AreNotChangedOnAnOldRevision) {
  ASSERT_TRUE(quotas->set_now(limit("ann", "8GiB"), admin));
  EXPECT_THAT(refused(limit("ann", "3GiB", 0), Code::kAborted),
              AllOf(HasSubstr("at revision 1, not 0"), HasSubstr("uid 42, pid 7, gpumem")));
  EXPECT_EQ(revision(), 1U);
  EXPECT_EQ(core.applied.size(), 1U);
  EXPECT_TRUE(quotas->set_now(limit("ann", "3GiB", 1), admin));
  EXPECT_THAT(refused(limit("ann", "3GiB", 9), Code::kAborted), HasSubstr("at revision 2, not 9"));
}

TEST_F(LiveQuotasTest, AreNotChangedForUnknownTenants) {
  const std::string words = refused(limit("bob", "1GiB"), Code::kNotFound);
  EXPECT_THAT(words,
              HasSubstr("'bob': the configuration has no such tenant; known are: ann, lab, uid:987654"));
  EXPECT_THAT(refused(limit("uid:1001", "1GiB"), Code::kNotFound), HasSubstr("user 1001 is tenant 'ann'"));
  EXPECT_THAT(refused(limit("uid:987655", "1GiB"), Code::kNotFound), HasSubstr("no such user"));
  core::QuotaChange reset;
  reset.tenant = "bob";
  reset.reset = true;
  EXPECT_THAT(refused(reset, Code::kNotFound), HasSubstr("'bob'"));
  EXPECT_TRUE(core.applied.empty());
  EXPECT_EQ(revision(), 0U);
  EXPECT_FALSE(std::filesystem::exists(folder / "state" / "quotas.toml"));
}

TEST_F(LiveQuotasTest, MakeTenantsOfConnectedAndOfExistingUsers) {
  auto outcome = quotas->set_now(limit("uid:987654", "1GiB"), admin);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->before[0].quota.limit, gibibytes(4)) << "50% of 8 GiB, as for every other user";
  EXPECT_EQ(outcome->after[0].parent, "lab");
  EXPECT_EQ(core.applied[0].tenants.back().name, "uid:987654");
  EXPECT_EQ(core.applied[0].tenants.back().uid, 987'654U);
  EXPECT_TRUE(quotas->set_now(limit("uid:0", "1GiB", 1), admin)) << "root";
}

TEST_F(LiveQuotasTest, ThatCannotHoldTogetherChangeNothing) {
  core::QuotaChange change = limit("ann", "1GiB");
  EXPECT_THAT(refused(change, Code::kInvalidArgument),
              AllOf(HasSubstr("'ann'"), HasSubstr("2GiB"), HasSubstr("1GiB")));
  change = {};
  change.tenant = "lab";
  change.guarantee = "7GiB";
  EXPECT_THAT(refused(change, Code::kInvalidArgument), HasSubstr("'lab' asks for 7GiB on top of 2GiB"));
  EXPECT_THAT(refused(limit("ann", "18446744073709551616"), Code::kInvalidArgument), HasSubstr("limit: "));
  EXPECT_TRUE(core.applied.empty());
  EXPECT_EQ(revision(), 0U);
}

TEST_F(LiveQuotasTest, WithALimitAboveThePoolAreRefusedWithThePool) {
  const std::string words = refused(limit("ann", "9GiB"), Code::kInvalidArgument);
  EXPECT_THAT(words, AllOf(HasSubstr("a limit of 9GiB is more than the pool of 8GiB"), HasSubstr(uuid)));
  EXPECT_TRUE(core.applied.empty());
  EXPECT_TRUE(quotas->set_now(limit("ann", "100%"), admin));
}

TEST_F(LiveQuotasTest, ThatTheCoreRefusesChangeNothing) {
  core.refuse = Error{Code::kFailedPrecondition, "not now"};
  EXPECT_EQ(refused(limit("ann", "8GiB"), Code::kFailedPrecondition), "not now");
  EXPECT_EQ(revision(), 0U);
  EXPECT_FALSE(std::filesystem::exists(folder / "state" / "quotas.toml"));
  EXPECT_FALSE(std::filesystem::exists(folder / "state" / "quotas.toml.new"));
  EXPECT_THAT(test::read_file(folder / "state" / "audit.log"), HasSubstr("\"withdrawn\":\"not now\""));
  core.refuse.reset();
  start();
  EXPECT_EQ(revision(), 0U);
  EXPECT_TRUE(quotas->set_now(limit("ann", "8GiB"), admin));
}

TEST_F(LiveQuotasTest, ThatCannotBeKeptAreTakenBackInTheCore) {
  core.meanwhile = [this] { std::filesystem::create_directories(folder / "state" / "quotas.toml"); };
  EXPECT_THAT(refused(limit("ann", "8GiB"), Code::kFailedPrecondition),
              HasSubstr("the old ones stay in force"));
  ASSERT_EQ(core.applied.size(), 2U);
  EXPECT_EQ(core.applied[1].tenants[0].quotas[0].limit, gibibytes(4));
  EXPECT_EQ(revision(), 0U);
}

TEST_F(LiveQuotasTest, AreTakenBack) {
  ASSERT_TRUE(quotas->set_now(limit("ann", "8GiB"), admin));
  core::QuotaChange reset;
  reset.tenant = "ann";
  reset.reset = true;
  reset.revision = 1;
  auto outcome = quotas->set_now(reset, admin);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->revision, 2U);
  EXPECT_EQ(outcome->after[0].quota.limit, gibibytes(4));
  EXPECT_FALSE(outcome->after[0].set_at_run_time);
  reset.revision = 2;
  outcome = quotas->set_now(reset, admin);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->revision, 2U) << "nothing was set";
  EXPECT_EQ(revision(), 2U);
  EXPECT_EQ(core.applied.size(), 2U);
}

TEST_F(LiveQuotasTest, SurviveAReloadThatDropsTheirTenant) {
  ASSERT_TRUE(quotas->set_now(limit("ann", "8GiB"), admin));
  ASSERT_TRUE(quotas->reload_now(
      config("[broker]\nreserve = \"8GiB\"\n[[tenant]]\nname = \"ann\"\nuser = 1001\nweight = 9\n")));
  EXPECT_EQ(core.applied.back().tenants[0].quotas[0], (core::Quota{{}, gibibytes(8), 9}));
  ASSERT_TRUE(quotas->reload_now(config("[broker]\nreserve = \"8GiB\"\n"))) << "kept, not applied";
  EXPECT_TRUE(core.applied.back().tenants.empty());
  EXPECT_THAT(kept(), HasSubstr("8GiB"));
  core::QuotaChange reset;
  reset.tenant = "ann";
  reset.reset = true;
  reset.revision = 1;
  auto outcome = quotas->set_now(reset, admin);
  ASSERT_TRUE(outcome) << "what is left of a tenant that is gone can be taken back: "
                       << outcome.error().message;
  EXPECT_EQ(kept().find("8GiB"), std::string::npos);
}

TEST_F(LiveQuotasTest, AReloadThatIsRefusedChangesNothing) {
  ASSERT_TRUE(quotas->set_now(limit("ann", "3GiB"), admin));
  auto reloaded =
      quotas->reload_now(config("[broker]\nreserve = \"8GiB\"\n[[tenant]]\nname = \"ann\"\nuser = "
                                "1001\nguarantee = \"4GiB\"\nlimit = \"8GiB\"\n"));
  ASSERT_FALSE(reloaded) << "a guarantee over the limit that was set";
  EXPECT_THAT(reloaded.error().message,
              AllOf(HasSubstr("limit of 3GiB"), HasSubstr("with the quotas set at run time, revision 1")));
  EXPECT_EQ(core.applied.size(), 1U);
  core::QuotaChange weight;
  weight.tenant = "ann";
  weight.weight = 3;
  weight.revision = 1;
  ASSERT_TRUE(quotas->set_now(weight, admin));
  EXPECT_EQ(core.applied.back().tenants[0].quotas[0], (core::Quota{gibibytes(2), gibibytes(3), 3}))
      << "the old configuration counts";
}

TEST_F(LiveQuotasTest, AreReadAgainWithAnyNameOfTheAdministratorsProgram) {
  const core::Caller odd{{.pid = 7, .uid = 42, .gids = {}, .command = "\xff\"\n\033[2J\\"}, "", true};
  ASSERT_TRUE(quotas->set_now(limit("ann", "8GiB"), odd));
  EXPECT_THAT(core.causes[0], HasSubstr("?\"??[2J\\"));
  start();
  EXPECT_EQ(revision(), 1U);
}

TEST_F(LiveQuotasTest, AnswerFromAThreadOfTheirOwn) {
  std::promise<std::pair<std::thread::id, std::uint64_t>> told;
  quotas->set(limit("ann", "8GiB"), admin, [&](const Result<core::QuotaOutcome>& outcome) {
    told.set_value({std::this_thread::get_id(), outcome ? outcome->revision : 0});
  });
  const auto [thread, revision] = told.get_future().get();
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(revision, 1U);
  std::promise<std::uint64_t> listed;
  quotas->list([&](const Result<core::QuotaList>& list) { listed.set_value(list->revision); });
  EXPECT_EQ(listed.get_future().get(), 1U);
}

}  // namespace
}  // namespace gpumem::host
