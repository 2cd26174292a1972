// gpumem-history beside a broker: what it keeps, over its own end too, and for whom.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

const User kReader = test_user(10'009);

struct History : BrokerTest {
  History() : BrokerTest({.config = shared("[accounts]\nreader = 10009\n")}) {}
  void SetUp() override {
    GPUMEM_NEEDS_ROOT();
    ASSERT_EQ(::chown(folder_.path().c_str(), kReader.uid, kReader.gid), 0);
  }

  std::unique_ptr<Child> start(User user = kReader, int output = -1) const {
    return std::make_unique<Child>(ChildOptions{
        .program = GPUMEM_TEST_HISTORY,
        .arguments = {"--runtime-dir", broker_.folder(), "--state-dir", folder_.path(), "--socket", socket()},
        .user = user,
        .output = output});
  }
  std::string socket() const { return folder_ / "history.sock"; }
  Outcome gpumem(std::vector<std::string> words, std::optional<User> user = {}) const {
    return run(
        {.program = cli_program(),
         .arguments = std::move(words),
         .environment = {{"GPUMEM_RUNTIME_DIR", broker_.folder()}, {"GPUMEM_HISTORY_SOCKET", socket()}},
         .user = user});
  }
  /// The rows for the user, by tenant; all of the device is "".
  std::map<std::string, Json> rows(std::optional<User> user = {}) const {
    const Outcome outcome = gpumem({"account", "--since", "2d", "--json"}, user);
    const Json answer = Json::parse(outcome.output, nullptr, false);
    std::map<std::string, Json> rows;
    if (outcome.status != 0) return rows;
    for (const Json& row : answer["rows"])
      rows[row["tenant"].is_null() ? "" : row["tenant"].get<std::string>()] = row;
    return rows;
  }
  double lent(const std::string& tenant) const {
    const auto all = rows();
    const auto found = all.find(tenant);
    return found == all.end() ? 0 : found->second["lent"].get<double>();
  }
  /// Of the broker's own account.
  double counted(const std::string& tenant) const {
    const Json answer = Json::parse(gpumem({"account", "--json"}).output, nullptr, false);
    for (const Json& one : answer["accounts"])
      if (one["tenant"] == tenant) return one["lent"];
    return 0;
  }

  TemporaryFolder folder_;
};

TEST_F(History, HasWhatTheBrokerCountsAfterEitherOfThemWasKilled) {
  auto history = start();
  {
    const auto bob = client_with(mebibytes(8), kBob);
    ASSERT_TRUE(eventually([&] { return lent("uid:10002") > 0; }));
    history->kill();
    broker_.kill();
    broker_.start_again();
    const double before = counted("uid:10002");
    ASSERT_TRUE(eventually([&] { return counted("uid:10002") > before; })) << "while nobody writes it down";
    history = start();
  }
  ASSERT_TRUE(eventually([&] { return broker_.sessions().empty(); }));
  const double all = counted("uid:10002");
  ASSERT_TRUE(eventually([&] { return lent("uid:10002") >= all; }));
  EXPECT_DOUBLE_EQ(lent("uid:10002"), all);
  EXPECT_GE(rows()["uid:10002"]["peak"], mebibytes(8).count);
  history->signal(SIGTERM);
  EXPECT_EQ(history->wait(), 0);
}

TEST_F(History, ShowsUsersTheirOwnAndForgetsThemForAdministrators) {
  const auto history = start();
  const auto ann = client_with(mebibytes(8), kAnn);
  const auto bob = client_with(mebibytes(8), kBob);
  ASSERT_TRUE(eventually([&] { return lent("uid:10001") > 0; }))
      << "events of the time before are not counted";
  EXPECT_TRUE(failed_with(ann->grow("a", kPool + mebibytes(2)), "RESOURCE_EXHAUSTED"));
  ASSERT_TRUE(eventually([&] {
    auto all = rows();
    return all.contains("uid:10002") && all["uid:10001"].value("denied", 0) == 1 &&
           all[""].value("denied", 0) == 1;
  }));
  EXPECT_EQ(rows(kAnn).size(), 1U);
  EXPECT_EQ(rows(kBob).count("uid:10002"), 1U);
  EXPECT_EQ(rows(kBob).size(), 1U);
  EXPECT_EQ(rows(kCat).size(), 0U);
  for (const char* option : {"--csv", "--long"}) {
    const std::string table = gpumem({"account", "--by", "day,tenant", option}, kBob).output;
    EXPECT_NE(table.find("10002"), std::string::npos) << table;
    EXPECT_EQ(table.find("10001"), std::string::npos) << table;
  }
  EXPECT_EQ(gpumem({"account", "--forget", "10002"}, kBob).status, 1);
  EXPECT_EQ(gpumem({"account", "--forget", "10002"}).status, 0);
  const auto is_old = [](const auto& row) { return row.first.starts_with("uid:10002 until "); };
  EXPECT_EQ(std::ranges::count_if(rows(), is_old), 1) << "an administrator sees it";
  EXPECT_EQ(std::ranges::count_if(rows(kBob), is_old), 0);
}

TEST_F(History, NeedsTheRightToReadAndHasNoOther) {
  const Outcome away = gpumem({"account", "--since", "monday"});
  EXPECT_EQ(away.status, 1);
  EXPECT_NE(away.output.find("systemctl start gpumem-history"), std::string::npos) << away.output;
  EXPECT_EQ(gpumem({"account"}).status, 0) << "the broker's own accounts need no history";
  EXPECT_EQ(gpumem({"account", "--since", "someday"}).status, 2);
  EXPECT_EQ(gpumem({"quota", "set", "uid:10001", "--limit", "1MiB"}, kReader).status, 1)
      << "a reader changes nothing";
  const auto ann = client_with(mebibytes(8), kAnn);
  EXPECT_EQ(gpumem({"why", "uid:10001"}, kReader).status, 1);
  ASSERT_EQ(::chown(folder_.path().c_str(), kCat.uid, kCat.gid), 0);
  const UniqueFd log(::open((folder_ / "log").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  const auto stranger = start(kCat, log.get());
  ASSERT_TRUE(eventually([&] {
    return read_file(folder_ / "log").find("does not let this user read all accounts") != std::string::npos;
  }));
  broker_.reload(shared("[accounts]\nreader = 10003\n"));
  ASSERT_TRUE(eventually([&] { return lent("uid:10001") > 0; })) << "once the configuration names it";
}

}  // namespace
}  // namespace gpumem::test
