// The configuration file: every key, and every way to get it wrong, with the place in the file.
#include "daemon/host/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Config good_config(std::string_view text) {
  auto config = parse_config(text, "g.toml");
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : Config{};
}

std::string wrong_config(std::string_view text) {
  auto config = parse_config(text, "g.toml");
  if (config) {
    ADD_FAILURE() << "taken: " << text;
    return {};
  }
  EXPECT_EQ(config.error().code, Code::kInvalidArgument);
  return config.error().message;
}

TEST(Config, OfAnEmptyFileLendsNearlyAllToEverybody) {
  const Config config = good_config("");
  EXPECT_EQ(config.runtime_folder, "/run/gpumemd");
  EXPECT_EQ(config.any_device.reserve, Amount::percent(9'000));
  EXPECT_TRUE(config.devices.empty());
  EXPECT_TRUE(config.tenants.empty());
  ASSERT_TRUE(config.others.has_value());
  EXPECT_FALSE(config.others->quotas.everywhere.limit.has_value());
}

TEST(Config, HasEveryKeyOfTheBroker) {
  const Config config = good_config(R"([broker]
runtime_dir = "/x"
socket_group = "gpu"
max_sessions = 7
max_sessions_per_tenant = 3
max_wait_seconds = 0
reserve = "all-but 2GiB"
state_dir = "/y"
admin_group = 27
aging_seconds = 90
reserve_idle_seconds = 30
lend_guarantees = true
reclaim_deadline_ms = 750
escalation = "end-session"
grace_seconds = 8
context_overhead = "300MiB"
context = "in-limit"
reconcile_seconds = 3
past_broker = "end"
past_broker_allowance = "1GiB"
past_broker_confirm_seconds = 7
fabric_handles = true
)");
  EXPECT_TRUE(config.fabric_handles);
  EXPECT_EQ(config.runtime_folder, "/x");
  EXPECT_EQ(config.state_folder, "/y");
  EXPECT_EQ(config.admin_group, "27");
  EXPECT_EQ(config.aging, std::chrono::seconds(90));
  EXPECT_EQ(config.reserve_idle, std::chrono::seconds(30));
  EXPECT_TRUE(config.any_device.reclaim.lend_guarantees);
  EXPECT_EQ(config.any_device.reclaim.deadline, std::chrono::milliseconds(750));
  EXPECT_EQ(config.any_device.reclaim.escalation, core::Escalation::kEndSession);
  EXPECT_EQ(config.any_device.reclaim.grace, std::chrono::seconds(8));
  EXPECT_EQ(config.any_device.context_overhead, mebibytes(300));
  EXPECT_TRUE(config.any_device.contexts_in_limit);
  EXPECT_EQ(config.reconcile, std::chrono::seconds(3));
  EXPECT_EQ(config.past_broker.confirm, std::chrono::seconds(7));
  EXPECT_TRUE(config.past_broker.end);
  EXPECT_EQ(config.past_broker.allowance, gibibytes(1));
  EXPECT_EQ(config.socket_group, "gpu");
  EXPECT_EQ(config.max_sessions, 7U);
  EXPECT_EQ(config.max_sessions_per_tenant, 3U);
  EXPECT_EQ(config.max_wait_seconds, 0);
  EXPECT_EQ(config.any_device.reserve, Amount::all_but(gibibytes(2)));
}

TEST(Config, NamesTheReaderOfAccounts) {
  EXPECT_EQ(good_config("").accounts.reader, "gpumem-history");
  EXPECT_EQ(good_config("[accounts]\nreader = 42\n").accounts.reader, "42");
  EXPECT_THAT(wrong_config("[accounts]\nwriter = 42\n"), HasSubstr("[accounts]"));
}

TEST(Config, NamesProgramsThatAreLeftToTheDriver) {
  EXPECT_THAT(good_config("[system]\nexcept = [\"Xorg\", \"blender\"]").system_except,
              testing::ElementsAre("Xorg", "blender"));
  EXPECT_THAT(wrong_config("[system]\nexcept = \"Xorg\""), HasSubstr("expected a list of texts"));
  EXPECT_THAT(wrong_config("[system]\nexcept = [1]"), HasSubstr("expected a text in quotes"));
  EXPECT_THAT(wrong_config("[system]\nexcept = [\"/usr/bin/blender\"]"), HasSubstr("without a folder"));
}

TEST(Config, HasEveryKeyOfDevicesTenantsAndTheDefault) {
  const Config config = good_config(R"([[device]]
uuid = "GPU-a"
[[device]]
uuid = "GPU-b"
reserve = "50%"
lend_guarantees = false
reclaim_deadline_ms = 1
escalation = "deny"
grace_seconds = 0
context_overhead = 0
[[tenant]]
name = "ann"
user = "ann"
guarantee = "1GiB"
limit = 4096
weight = 10000
priority = 0
  [[tenant.device]]
  uuid = "GPU-a"
  guarantee = 0
  limit = "25%"
  weight = 1
  priority = 9
[[tenant]]
name = "team"
group = 100
parent = "lab"
[[tenant]]
name = "lab"
[[tenant]]
name = "guests"
[default]
parent = "guests"
guarantee = "1MiB"
limit = "10%"
weight = 50
priority = 2
  [[default.device]]
  uuid = "GPU-b"
  limit = "20%"
[broker]
reserve = "80%"
escalation = "end-session"
lend_guarantees = true
)");
  ASSERT_EQ(config.devices.size(), 2U);
  const DeviceConfig& a = config.devices.at("GPU-a");
  EXPECT_EQ(a.reserve, Amount::percent(8'000)) << "[broker] counts, though it comes last";
  EXPECT_EQ(a.reclaim.escalation, core::Escalation::kEndSession);
  EXPECT_TRUE(a.reclaim.lend_guarantees);
  const DeviceConfig& b = config.devices.at("GPU-b");
  EXPECT_EQ(b.reserve, Amount::percent(5'000));
  EXPECT_EQ(b.reclaim.escalation, core::Escalation::kDeny);
  EXPECT_EQ(b.reclaim.deadline, std::chrono::milliseconds(1));
  EXPECT_EQ(b.reclaim.grace, std::chrono::seconds(0));
  EXPECT_FALSE(b.reclaim.lend_guarantees);
  ASSERT_EQ(config.tenants.size(), 4U);
  const TenantConfig& ann = config.tenants[0];
  EXPECT_EQ(ann.user, "ann");
  EXPECT_EQ(ann.group, "");
  EXPECT_EQ(ann.quotas.everywhere.guarantee, Amount::absolute(gibibytes(1)));
  EXPECT_EQ(ann.quotas.everywhere.limit, Amount::absolute({4096}));
  EXPECT_EQ(ann.quotas.by_device.at("GPU-a").guarantee, Amount::absolute({}));
  EXPECT_EQ(ann.quotas.by_device.at("GPU-a").limit, Amount::percent(2'500));
  EXPECT_EQ(ann.quotas.everywhere.weight, 10'000U);
  EXPECT_EQ(ann.quotas.everywhere.priority, 0U);
  EXPECT_EQ(ann.quotas.by_device.at("GPU-a").weight, 1U);
  EXPECT_EQ(ann.quotas.by_device.at("GPU-a").priority, 9U);
  EXPECT_EQ(ann.parent, "");
  EXPECT_EQ(config.tenants[1].group, "100") << "users and groups may be numbers";
  EXPECT_EQ(config.tenants[1].parent, "lab");
  EXPECT_EQ(config.tenants[1].quotas.everywhere.weight, std::nullopt);
  ASSERT_TRUE(config.others.has_value());
  EXPECT_EQ(config.others->parent, "guests");
  EXPECT_EQ(config.others->quotas.everywhere.weight, 50U);
  EXPECT_EQ(config.others->quotas.everywhere.priority, 2U);
  EXPECT_EQ(config.others->quotas.everywhere.limit, Amount::percent(1'000));
  EXPECT_EQ(config.others->quotas.by_device.at("GPU-b").limit, Amount::percent(2'000));
}

TEST(Config, CanRefuseOthers) {
  EXPECT_FALSE(good_config("[default]\nrefuse = true\n").others.has_value());
  EXPECT_TRUE(good_config("[default]\nrefuse = false\n").others.has_value());
}

TEST(Config, NamesTheTableThatAKeyBelongsIn) {
  EXPECT_THAT(
      wrong_config("escalation = \"deny\"\n"),
      StartsWith("g.toml:1:1: unknown key 'escalation' in the file; it belongs in [broker]; known are: "));
  EXPECT_THAT(wrong_config("[broker]\nlimit = \"1GiB\"\n"),
              HasSubstr("; it belongs in [[tenant]] or [default]; "));
  EXPECT_THAT(wrong_config("[broker]\nmade_up = 1\n"), Not(HasSubstr("belongs")));
}

TEST(Config, SaysThatAmountsAreWrittenInQuotes) {
  for (const char* value : {"8GiB", "25%", "0.5GiB  # half", "all-but 2GiB"})
    EXPECT_THAT(wrong_config(std::string("[broker]\n\nreserve = ") + value + "\n[default]\n"),
                AllOf(StartsWith("g.toml:3:"), HasSubstr("; amounts are texts: write them in quotes, \"")))
        << value;
  EXPECT_THAT(wrong_config("[broker]\nescalation = deny\n"), Not(HasSubstr("quotes")));
  EXPECT_THAT(wrong_config("[broker"), Not(HasSubstr("quotes")));
}

TEST(Config, WithAnUnknownKeyNamesItItsPlaceAndTheKnownOnes) {
  EXPECT_THAT(wrong_config("\n\nbrokr = 1\n"),
              StartsWith("g.toml:3:1: unknown key 'brokr' in the file; known are: broker, device"));
  EXPECT_THAT(wrong_config("[broker]\n  many = 1\n"),
              StartsWith("g.toml:2:3: unknown key 'many' in [broker]; known are: runtime_dir"));
  EXPECT_THAT(wrong_config("[broker]\n  size = 1\n"), HasSubstr("it belongs in [host]"));
  EXPECT_THAT(wrong_config("[[device]]\nuuid = \"a\"\nlimit = 1\n"),
              StartsWith("g.toml:3:1: unknown key 'limit' in [[device]]"));
  EXPECT_THAT(wrong_config("[[tenant]]\nname = \"a\"\nuid = 1\n"),
              StartsWith("g.toml:3:1: unknown key 'uid' in [[tenant]]"));
  EXPECT_THAT(wrong_config("[default]\nname = \"a\"\n"),
              StartsWith("g.toml:2:1: unknown key 'name' in [default]"));
  EXPECT_THAT(
      wrong_config("[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant.device]]\nuuid = \"x\"\nparent = 1\n"),
      StartsWith("g.toml:6:1: unknown key 'parent' in a tenant's device"));
}

TEST(Config, WithAValueOfTheWrongTypeNamesTheRightType) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"broker = 1", "expected a table"},
      {"device = 1", "expected a list of tables"},
      {"[device]\nuuid = \"a\"", "expected a list of tables"},
      {"tenant = [1]", "expected a table"},
      {"default = true", "expected a table"},
      {"[broker]\nruntime_dir = 1", "expected a text in quotes"},
      {"[broker]\nsocket_group = true", "expected a text in quotes"},
      {"[broker]\nmax_sessions = \"many\"", "expected a whole number from 1 to 100000"},
      {"[broker]\nmax_sessions = 1.5", "expected a whole number"},
      {"[broker]\nreserve = true", "expected an amount such as"},
      {"[default]\nlimit = 1.5", "expected an amount such as"},
      {"[default]\nlimit = []", "expected an amount such as"},
      {"[default]\nweight = \"much\"", "expected a whole number from 1 to 10000"},
      {"[default]\nparent = 1", "expected a text in quotes"},
      {"[broker]\nlend_guarantees = 1", "expected true or false"},
      {"[broker]\nescalation = \"kill\"", "expected one of \"wait\", \"deny\", \"end-session\""},
      {"[broker]\nescalation = 1", "expected one of \"wait\""},
      {"[[device]]\nuuid = \"a\"\nescalation = \"\"", "expected one of \"wait\""},
      {"[broker]\npast_broker = \"deny\"", "expected one of \"report\", \"end\""},
      {"[broker]\npast_broker_allowance = \"5%\"", "and no share"},
      {"[broker]\ncontext_overhead = \"all-but 1GiB\"", "and no share"},
      {"[broker]\ncontext_overhead = -1", "expected an amount of at least 0"},
      {"[broker]\ncontext = \"within\"", "expected one of \"beside\", \"in-limit\""},
      {"[broker]\nstate_dir = 1", "expected a text in quotes"},
      {"[broker]\nadmin_group = 1.5", "expected a text in quotes"},
      {"[default]\nrefuse = 1", "expected true or false"},
      {"[[device]]\nuuid = 1", "expected a text in quotes"},
      {"[[tenant]]\nname = 1\nuser = 1", "expected a text in quotes"},
      {"[[tenant]]\nname = \"a\"\nuser = 1.0", "expected a text in quotes"},
  };
  for (const auto& [text, words] : cases) EXPECT_THAT(wrong_config(text), HasSubstr(words)) << text;
}

TEST(Config, WithANumberOutOfItsRangeIsRefused) {
  EXPECT_THAT(wrong_config("[broker]\nmax_sessions = 0"), HasSubstr("from 1 to 100000"));
  EXPECT_THAT(wrong_config("[broker]\nmax_sessions = 100001"), HasSubstr("from 1 to 100000"));
  EXPECT_THAT(wrong_config("[broker]\nmax_sessions_per_tenant = -1"), HasSubstr("from 1"));
  EXPECT_THAT(wrong_config("[broker]\nmax_wait_seconds = -1"), HasSubstr("from 0 to 604800"));
  EXPECT_THAT(wrong_config("[broker]\naging_seconds = -1"), HasSubstr("from 0 to 604800"));
  EXPECT_THAT(wrong_config("[broker]\nreclaim_deadline_ms = 0"), HasSubstr("from 1 to 86400000"));
  EXPECT_THAT(wrong_config("[broker]\ngrace_seconds = 86401"), HasSubstr("from 0 to 86400"));
  EXPECT_THAT(wrong_config("[broker]\nreconcile_seconds = -1"), HasSubstr("from 0 to 86400"));
  for (const char* table :
       {"[default]\n", "[[tenant]]\nname = \"a\"\nuser = 1\n", "[[default.device]]\nuuid = \"a\"\n"}) {
    EXPECT_THAT(wrong_config(table + std::string("weight = 0")), HasSubstr("from 1 to 10000")) << table;
    EXPECT_THAT(wrong_config(table + std::string("weight = 10001")), HasSubstr("from 1 to 10000")) << table;
    EXPECT_THAT(wrong_config(table + std::string("priority = -1")), HasSubstr("from 0 to 9")) << table;
    EXPECT_THAT(wrong_config(table + std::string("priority = 10")), HasSubstr("from 0 to 9")) << table;
  }
}

TEST(Config, WithABadAmountIsRefusedAtItsLine) {
  for (const char* amount : {"\"\"", "\"lots\"", "\"101%\"", "\"-1GiB\"", "\"1.5\"", "\"20000000000GiB\"",
                             "-1", "\"1 parsec\"", "\"all-but\"", "\"all-but 50%\""}) {
    EXPECT_THAT(wrong_config(std::string("[default]\n\nlimit = ") + amount), StartsWith("g.toml:3:"))
        << amount;
  }
}

TEST(Config, WithSomethingTwiceIsRefused) {
  EXPECT_THAT(wrong_config("[broker]\nreserve = 1\nreserve = 2\n"), StartsWith("g.toml:3:"));
  EXPECT_THAT(wrong_config("[broker]\n[broker]\n"), StartsWith("g.toml:2:"));
  EXPECT_THAT(wrong_config("[[device]]\nuuid = \"a\"\n[[device]]\nuuid = \"a\"\n"),
              HasSubstr("'a' is given twice"));
  EXPECT_THAT(wrong_config("[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant]]\nname = \"a\"\nuser = 2\n"),
              StartsWith("g.toml:4:1: tenant 'a' is given twice"));
  EXPECT_THAT(wrong_config("[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant.device]]\nuuid = "
                           "\"x\"\n[[tenant.device]]\nuuid = \"x\"\n"),
              StartsWith("g.toml:6:1: device 'x' is given twice for one tenant"));
}

TEST(Config, WithATenantThatIsNobodyOrTwoIsRefused) {
  EXPECT_THAT(wrong_config("[[tenant]]\nuser = 1\n"), HasSubstr("a tenant needs a 'name'"));
  EXPECT_THAT(wrong_config("[[tenant]]\nname = \"(all)\"\nuser = 1\n"), HasSubstr("choose another name"));
  EXPECT_THAT(wrong_config("[[tenant]]\nname = \"a\"\n"),
              HasSubstr("'a' needs either a 'user' or a 'group'"));
  EXPECT_THAT(wrong_config("[[tenant]]\nname = \"a\"\nuser = 1\ngroup = 1\n"),
              HasSubstr("either a 'user' or a 'group', not both"));
  EXPECT_THAT(wrong_config("[[device]]\nreserve = 1\n"), HasSubstr("a device needs its 'uuid'"));
  EXPECT_THAT(wrong_config("[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant.device]]\nlimit = 1\n"),
              HasSubstr("needs its 'uuid'"));
}

TEST(Config, AllowsFabricHandlesToUsersAndGroupsWhereTheBrokerHasThem) {
  const std::string broker = "[broker]\nfabric_handles = true\n";
  const std::string ann = "[[tenant]]\nname = \"ann\"\nuser = 1\nfabric_handles = true\n";
  EXPECT_TRUE(good_config(ann + broker).tenants.at(0).fabric_handles);
  EXPECT_FALSE(good_config("").fabric_handles);
  EXPECT_THAT(wrong_config(ann), HasSubstr("needs fabric_handles in [broker]"));
  const std::string lab = "[[tenant]]\nname = \"lab\"\nfabric_handles = true\n";
  const std::string member = "[[tenant]]\nname = \"bob\"\nuser = 2\nparent = \"lab\"\n";
  EXPECT_THAT(wrong_config(broker + lab + member), HasSubstr("'user' or a 'group'"));
}

TEST(Config, MayHaveATenantThatIsNobodyOnlyAsAParent) {
  const std::string lab =
      "[[tenant]]\nname = \"ann\"\nuser = 1\nparent = \"lab\"\n[[tenant]]\nname = \"lab\"\n";
  EXPECT_EQ(good_config(lab).tenants.size(), 2U);
  EXPECT_EQ(good_config("[default]\nparent = \"lab\"\n[[tenant]]\nname = \"lab\"\n").tenants.size(), 1U);
  EXPECT_THAT(
      wrong_config(lab + "[[tenant]]\nname = \"den\"\n"),
      StartsWith("g.toml:7:1: tenant 'den' needs either a 'user' or a 'group', or tenants that name it"));
  EXPECT_THAT(wrong_config("[default]\nrefuse = true\nparent = \"lab\"\n[[tenant]]\nname = \"lab\"\n"),
              HasSubstr("tenant 'lab' needs"))
      << "nobody is under the default";
}

TEST(Config, WithATenantsNameThatCouldMisleadIsRefused) {
  EXPECT_THAT(wrong_config("[[tenant]]\nname = \"uid:7\"\nuser = 8\n"),
              HasSubstr("are of users without a tenant"));
  EXPECT_THAT(wrong_config("[[tenant]]\nname = \"a\\u001b[2J\"\nuser = 8\n"), HasSubstr("printable"));
  EXPECT_THAT(wrong_config("[[tenant]]\nname = \"" + std::string(129, 'a') + "\"\nuser = 8\n"),
              HasSubstr("at most 128 bytes"));
}

TEST(Config, ReadsTheReadersOfTheMetrics) {
  EXPECT_EQ(good_config("").metrics.listen, "") << "nobody by a port";
  const Config config = good_config("[metrics]\nlisten = \"127.0.0.1:9400\"\ngroup = 42\n");
  EXPECT_EQ(config.metrics.listen, "127.0.0.1:9400");
  EXPECT_EQ(config.metrics.group, "42");
}

TEST(Config, LetsOtherMachinesReadTheMetricsOnlyIfToldSo) {
  EXPECT_THAT(wrong_config("[metrics]\nlisten = \"0.0.0.0:9400\"\n"),
              StartsWith("g.toml:2:10: listen: '0.0.0.0:9400' is reached from other machines"));
  EXPECT_THAT(wrong_config("[metrics]\npublic = false\nlisten = \"[::]:9400\"\n"),
              HasSubstr("add public = true"));
  EXPECT_EQ(good_config("[metrics]\npublic = true\nlisten = \"[::]:9400\"\n").metrics.listen, "[::]:9400");
  EXPECT_THAT(wrong_config("[metrics]\npublic = true\nlisten = \"here:9400\"\n"),
              StartsWith("g.toml:3:10: listen: 'here:9400' is no address"));
}

TEST(Config, NamesErrorsInTheMetricsSection) {
  EXPECT_THAT(wrong_config("[metrics]\nlisten = 9400\n"), HasSubstr("expected a text in quotes"));
  EXPECT_THAT(wrong_config("[metrics]\npublic = \"yes\"\n"), HasSubstr("expected true or false"));
  EXPECT_THAT(wrong_config("[metrics]\nport = 9400\n"), HasSubstr("listen, public, group"));
}

TEST(Config, ThatIsNoTomlIsRefusedAtItsPlace) {
  EXPECT_THAT(wrong_config("[broker"), StartsWith("g.toml:1:"));
  EXPECT_THAT(wrong_config("x = \"\\q\""), StartsWith("g.toml:1:"));
  EXPECT_THAT(wrong_config("ok = 1\n\xff\xfe"), HasSubstr("utf-8"));
  EXPECT_THAT(wrong_config(std::string_view("a = 1\0", 6)), StartsWith("g.toml:1:"));
}

TEST(Config, IsReadFromAFile) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "c.toml", "[broker]\nmax_sessions = 9\n" + std::string(10'000, '#'));
  auto config = load_config(folder / "c.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->max_sessions, 9U);
}

TEST(Config, ThatCannotBeReadIsAnErrorThatNamesTheFile) {
  const test::TemporaryFolder folder;
  const auto missing = load_config(folder / "none.toml");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("none.toml"));
  const auto no_file = load_config(folder.path());
  ASSERT_FALSE(no_file) << "a folder";
  EXPECT_THAT(no_file.error().message, HasSubstr(folder.path().string()));
}

}  // namespace
}  // namespace gpumem::host
