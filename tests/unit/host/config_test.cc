// The configuration file: every key, and every way to get it wrong, with the place in the file.
#include "daemon/host/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Config good(std::string_view text) {
  auto config = parse_config(text, "g.toml");
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : Config{};
}

std::string wrong(std::string_view text) {
  auto config = parse_config(text, "g.toml");
  if (config) {
    ADD_FAILURE() << "taken: " << text;
    return {};
  }
  EXPECT_EQ(config.error().code, Code::kInvalidArgument);
  return config.error().message;
}

TEST(Config, OfAnEmptyFileLendsNearlyAllToEverybody) {
  const Config config = good("");
  EXPECT_EQ(config.runtime_folder, "/run/gpumemd");
  EXPECT_EQ(config.reserve, Amount::percent(9'000));
  EXPECT_TRUE(config.devices.empty());
  EXPECT_TRUE(config.tenants.empty());
  ASSERT_TRUE(config.others.has_value());
  EXPECT_FALSE(config.others->everywhere.limit.has_value());
}

TEST(Config, HasEveryKeyOfTheBroker) {
  const Config config = good(R"([broker]
runtime_dir = "/x"
socket_group = "gpu"
max_sessions = 7
max_sessions_per_tenant = 3
max_wait_seconds = 0
reserve = "all-but 2GiB"
)");
  EXPECT_EQ(config.runtime_folder, "/x");
  EXPECT_EQ(config.socket_group, "gpu");
  EXPECT_EQ(config.max_sessions, 7U);
  EXPECT_EQ(config.max_sessions_per_tenant, 3U);
  EXPECT_EQ(config.max_wait_seconds, 0);
  EXPECT_EQ(config.reserve, Amount::all_but(gibibytes(2)));
}

TEST(Config, HasEveryKeyOfDevicesTenantsAndTheDefault) {
  const Config config = good(R"([[device]]
uuid = "GPU-a"
[[device]]
uuid = "GPU-b"
reserve = "50%"
[[tenant]]
name = "ann"
user = "ann"
guarantee = "1GiB"
limit = 4096
  [[tenant.device]]
  uuid = "GPU-a"
  guarantee = 0
  limit = "25%"
[[tenant]]
name = "team"
group = 100
[default]
guarantee = "1MiB"
limit = "10%"
  [[default.device]]
  uuid = "GPU-b"
  limit = "20%"
[broker]
reserve = "80%"
)");
  EXPECT_EQ(config.devices, (std::vector<std::string>{"GPU-a", "GPU-b"}));
  EXPECT_EQ(config.reserve_by_device.at("GPU-a"), Amount::percent(8'000))
      << "[broker] counts, though it comes last";
  EXPECT_EQ(config.reserve_by_device.at("GPU-b"), Amount::percent(5'000));
  ASSERT_EQ(config.tenants.size(), 2U);
  const TenantConfig& ann = config.tenants[0];
  EXPECT_EQ(ann.user, "ann");
  EXPECT_EQ(ann.group, "");
  EXPECT_EQ(ann.quotas.everywhere.guarantee, Amount::absolute(gibibytes(1)));
  EXPECT_EQ(ann.quotas.everywhere.limit, Amount::absolute({4096}));
  EXPECT_EQ(ann.quotas.by_device.at("GPU-a").guarantee, Amount::absolute({}));
  EXPECT_EQ(ann.quotas.by_device.at("GPU-a").limit, Amount::percent(2'500));
  EXPECT_EQ(config.tenants[1].group, "100") << "users and groups may be numbers";
  ASSERT_TRUE(config.others.has_value());
  EXPECT_EQ(config.others->everywhere.limit, Amount::percent(1'000));
  EXPECT_EQ(config.others->by_device.at("GPU-b").limit, Amount::percent(2'000));
}

TEST(Config, CanRefuseOthers) {
  EXPECT_FALSE(good("[default]\nrefuse = true\n").others.has_value());
  EXPECT_TRUE(good("[default]\nrefuse = false\n").others.has_value());
}

TEST(Config, WithAnUnknownKeyNamesItItsPlaceAndTheKnownOnes) {
  EXPECT_THAT(wrong("\n\nbrokr = 1\n"),
              StartsWith("g.toml:3:1: unknown key 'brokr' in the file; known are: broker, device"));
  EXPECT_THAT(wrong("[broker]\n  size = 1\n"),
              StartsWith("g.toml:2:3: unknown key 'size' in [broker]; known are: runtime_dir"));
  EXPECT_THAT(wrong("[[device]]\nuuid = \"a\"\nlimit = 1\n"),
              StartsWith("g.toml:3:1: unknown key 'limit' in [[device]]"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuid = 1\n"),
              StartsWith("g.toml:3:1: unknown key 'uid' in [[tenant]]"));
  EXPECT_THAT(wrong("[default]\nname = \"a\"\n"), StartsWith("g.toml:2:1: unknown key 'name' in [default]"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant.device]]\nuuid = \"x\"\nreserve = 1\n"),
              StartsWith("g.toml:6:1: unknown key 'reserve' in a tenant's device"));
}

TEST(Config, WithAValueOfTheWrongTypeSaysWhatIsExpected) {
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
      {"[default]\nrefuse = 1", "expected true or false"},
      {"[[device]]\nuuid = 1", "expected a text in quotes"},
      {"[[tenant]]\nname = 1\nuser = 1", "expected a text in quotes"},
      {"[[tenant]]\nname = \"a\"\nuser = 1.0", "expected a text in quotes"},
  };
  for (const auto& [text, words] : cases) EXPECT_THAT(wrong(text), HasSubstr(words)) << text;
}

TEST(Config, WithANumberOutOfItsRangeIsRefused) {
  EXPECT_THAT(wrong("[broker]\nmax_sessions = 0"), HasSubstr("from 1 to 100000"));
  EXPECT_THAT(wrong("[broker]\nmax_sessions = 100001"), HasSubstr("from 1 to 100000"));
  EXPECT_THAT(wrong("[broker]\nmax_sessions_per_tenant = -1"), HasSubstr("from 1"));
  EXPECT_THAT(wrong("[broker]\nmax_wait_seconds = -1"), HasSubstr("from 0 to 604800"));
}

TEST(Config, WithABadAmountIsRefusedAtItsLine) {
  for (const char* amount : {"\"\"", "\"lots\"", "\"101%\"", "\"-1GiB\"", "\"1.5\"", "\"20000000000GiB\"",
                             "-1", "\"1 parsec\"", "\"all-but\"", "\"all-but 50%\""}) {
    EXPECT_THAT(wrong(std::string("[default]\n\nlimit = ") + amount), StartsWith("g.toml:3:")) << amount;
  }
}

TEST(Config, WithSomethingTwiceIsRefused) {
  EXPECT_THAT(wrong("[broker]\nreserve = 1\nreserve = 2\n"), StartsWith("g.toml:3:"));
  EXPECT_THAT(wrong("[broker]\n[broker]\n"), StartsWith("g.toml:2:"));
  EXPECT_THAT(wrong("[[device]]\nuuid = \"a\"\n[[device]]\nuuid = \"a\"\n"), HasSubstr("'a' is given twice"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant]]\nname = \"a\"\nuser = 2\n"),
              StartsWith("g.toml:4:1: tenant 'a' is given twice"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant.device]]\nuuid = "
                    "\"x\"\n[[tenant.device]]\nuuid = \"x\"\n"),
              StartsWith("g.toml:6:1: device 'x' is given twice for one tenant"));
}

TEST(Config, WithATenantThatIsNobodyOrTwoIsRefused) {
  EXPECT_THAT(wrong("[[tenant]]\nuser = 1\n"), HasSubstr("a tenant needs a 'name'"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\n"), HasSubstr("'a' needs either a 'user' or a 'group'"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuser = 1\ngroup = 1\n"),
              HasSubstr("either a 'user' or a 'group'"));
  EXPECT_THAT(wrong("[[device]]\nreserve = 1\n"), HasSubstr("a device needs its 'uuid'"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant.device]]\nlimit = 1\n"),
              HasSubstr("needs its 'uuid'"));
}

TEST(Config, ThatIsNoTomlIsRefusedAtItsPlace) {
  EXPECT_THAT(wrong("[broker"), StartsWith("g.toml:1:"));
  EXPECT_THAT(wrong("x = \"\\q\""), StartsWith("g.toml:1:"));
  EXPECT_THAT(wrong("ok = 1\n\xff\xfe"), HasSubstr("utf-8"));
  EXPECT_THAT(wrong(std::string_view("a = 1\0", 6)), StartsWith("g.toml:1:"));
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
