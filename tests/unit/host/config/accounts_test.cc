// Users and groups that the configuration names, on a machine that has them, or not, or not yet.
#include "daemon/host/config/accounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

struct AccountsTest : testing::Test {
  AccountLookup machine() const {
    const auto in = [](const std::map<std::string, std::uint32_t>& all, const std::string& name) {
      const auto found = all.find(name);
      return found == all.end() ? std::nullopt : std::optional(found->second);
    };
    const auto name_in = [](const std::map<std::string, std::uint32_t>& all, std::uint32_t number) {
      const auto found = std::ranges::find(all, number, [](const auto& one) { return one.second; });
      return found == all.end() ? std::nullopt : std::optional(found->first);
    };
    return {[this, in](const std::string& name) { return in(users, name); },
            [this, in](const std::string& name) { return in(groups, name); },
            [this, name_in](std::uint32_t number) { return name_in(users, number); },
            [this, name_in](std::uint32_t number) { return name_in(groups, number); }};
  }
  static Config config() {
    auto config = parse_config(
        "[broker]\nadmin_group = \"ops\"\n[metrics]\ngroup = 77\n[[tenant]]\nname = \"a\"\nuser = \"ann\"\n"
        "[[tenant]]\nname = \"l\"\ngroup = \"lab\"\n",
        "g.toml");
    EXPECT_TRUE(config) << config.error().message;
    return config ? *config : Config{};
  }
  static std::vector<std::string> in_words(const std::vector<Account>& missing) {
    std::vector<std::string> words;
    for (const Account& account : missing) words.push_back(in_words_missing(account));
    return words;
  }
  std::string refusal(const Accounts& accounts) const {
    const auto known = KnownAccounts::open(folder.path());
    EXPECT_TRUE(known) << known.error().message;
    const auto right = known->check(accounts);
    return right ? "" : right.error().message;
  }

  std::map<std::string, std::uint32_t> users{{"ann", 1001}}, groups{{"lab", 50}, {"ops", 60}};
  test::TemporaryFolder folder;
};

TEST_F(AccountsTest, HaveTheirNumbers) {
  Config read = config();
  EXPECT_THAT(look_up(read, {}, machine()).missing, IsEmpty());
  EXPECT_EQ(read.tenants[0].uid, 1001U);
  EXPECT_EQ(read.tenants[0].gid, std::nullopt);
  EXPECT_EQ(read.tenants[1].gid, 50U);
  EXPECT_EQ(read.admin_gid, 60U);
  EXPECT_EQ(read.metrics.gid, 77U) << "a number needs no group";
}

TEST_F(AccountsTest, TheReaderMayBeMissing) {
  Config read = config();
  EXPECT_THAT(look_up(read, {}, machine()).missing, IsEmpty());
  EXPECT_EQ(read.accounts.uid, std::nullopt);
  users["gpumem-history"] = 990;
  look_up_reader(read, machine());
  EXPECT_EQ(read.accounts.uid, 990U);
  for (const auto& [name, uid] :
       {std::pair{"", std::optional<std::uint32_t>()}, std::pair{"77", std::optional(77U)}}) {
    read.accounts.reader = name;
    look_up_reader(read, machine());
    EXPECT_EQ(read.accounts.uid, uid) << name;
  }
}

TEST_F(AccountsTest, WaitUntilTheyAreThere) {
  users.clear();
  groups.clear();
  Config read = config();
  EXPECT_THAT(in_words(look_up(read, {}, machine()).missing),
              ElementsAre("tenant 'a' waits: this machine has no user 'ann' at present",
                          "tenant 'l' waits: this machine has no group 'lab' at present",
                          "admin_group waits: this machine has no group 'ops' at present"));
  EXPECT_EQ(read.tenants[0].uid, std::nullopt);
  users["ann"] = 1002;
  EXPECT_EQ(look_up(read, read, machine()).missing.size(), 2U);
  EXPECT_EQ(read.tenants[0].uid, 1002U);
}

TEST_F(AccountsTest, KeepTheNumberThatIsInForce) {
  Config before = config();
  look_up(before, {}, machine());
  users.clear();
  Config read = config();
  EXPECT_THAT(in_words(look_up(read, before, machine()).missing),
              ElementsAre(HasSubstr("tenant 'a' keeps the number 1001 until another account gets it")));
  EXPECT_EQ(read.tenants[0].uid, 1001U);
}

TEST_F(AccountsTest, LeaveTheirNumberToTheAccountThatGetsIt) {
  Config before = config();
  look_up(before, {}, machine());
  users = {{"eve", 1001}};
  groups = {{"lab", 50}, {"students", 60}};
  Config read = config();
  EXPECT_THAT(in_words(look_up(read, before, machine()).missing),
              ElementsAre("tenant 'a' waits: this machine has no user 'ann' at present",
                          "admin_group waits: this machine has no group 'ops' at present"));
  EXPECT_EQ(read.tenants[0].uid, std::nullopt);
  EXPECT_EQ(read.admin_gid, std::nullopt);
  const Config later = read;
  users.clear();
  groups.clear();
  look_up(read, later, machine());
  EXPECT_EQ(read.tenants[0].uid, std::nullopt) << "it is not given back";
  EXPECT_EQ(read.tenants[1].gid, 50U);
}

TEST_F(AccountsTest, ThatWereNeverFoundAreMistakes) {
  Config read = config();
  const Accounts all = look_up(read, {}, machine());
  users.clear();
  const Accounts without_ann = look_up(read, {}, machine());
  EXPECT_THAT(refusal(without_ann), HasSubstr("tenant 'a': there is no user 'ann' on this machine, and there "
                                              "was none before: correct the name"));
  KnownAccounts::open(folder.path())->put_in_force(all);
  EXPECT_EQ(refusal(without_ann), "") << "it was deleted since, which another broker knows, too";
  KnownAccounts::open(folder.path())->put_in_force(without_ann);
  EXPECT_EQ(refusal(without_ann), "");
  Config other;
  KnownAccounts::open(folder.path())->put_in_force(look_up(other, {}, machine()));
  EXPECT_NE(refusal(without_ann), "") << "forgotten with the configuration that named it";
}

}  // namespace
}  // namespace gpumem::host
