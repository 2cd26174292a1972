// gpumem-history beside a broker: what it keeps, over its own end too, and for whom.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <span>
#include <sstream>

#include "base/system/unix_socket.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

const User kReader = test_user(10'009);

struct History : BrokerTest {
  History() : History("") {}
  explicit History(const std::string& more)
      : BrokerTest({.config = shared("[accounts]\nreader = 10009\n" + more)}) {}
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
    ChildOptions options = broker_.command(std::move(words), user);
    options.environment.emplace_back("GPUMEM_HISTORY_SOCKET", socket());
    return run(options);
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

TEST_F(History, IsKeptByOneProcessThatAnswersAtItsSocket) {
  const auto history = start();
  ASSERT_TRUE(eventually([&] { return gpumem({"account", "--since", "1h"}).status == 0; }));
  const TemporaryFolder other;
  for (const auto& [folder, at] :
       {std::pair{folder_.path(), other / "history.sock"}, {other.path(), socket()}}) {
    const Outcome second =
        run({.program = GPUMEM_TEST_HISTORY,
             .arguments = {"--runtime-dir", broker_.folder(), "--state-dir", folder, "--socket", at}});
    EXPECT_EQ(second.status, 1);
    EXPECT_THAT(second.output, testing::HasSubstr("another gpumem-history"));
  }
  EXPECT_EQ(gpumem({"account", "--since", "1h"}).status, 0);
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
  EXPECT_EQ(gpumem({"account", "--since", "2d"}, kCat).output,
            "nothing that you may see is recorded of that time\n");
  for (const char* option : {"--csv", "--long"}) {
    const std::string table = gpumem({"account", "--by", "day,tenant", option}, kBob).output;
    EXPECT_NE(table.find("10002"), std::string::npos) << table;
    EXPECT_EQ(table.find("10001"), std::string::npos) << table;
  }
  EXPECT_EQ(gpumem({"account", "--forget", "10002"}, kBob).status, 1);
  EXPECT_EQ(gpumem({"account", "--forget", "nobody at all"}).status, 2);
  EXPECT_EQ(gpumem({"account", "--forget", "10002"}).output,
            "user 10002 has no history any more: 1 account\n");
  EXPECT_EQ(gpumem({"account", "--forget", "10002"}).output, "user 10002 has no history\n");
  const auto is_old = [](const auto& row) { return row.first.starts_with("uid:10002 until "); };
  EXPECT_EQ(std::ranges::count_if(rows(), is_old), 1) << "an administrator sees it";
  EXPECT_EQ(std::ranges::count_if(rows(kBob), is_old), 0);
}

/// The events that the user is shown, as `kind session`, and what else is said.
struct Events {
  std::vector<std::string> kinds;
  std::string said;
};

TEST_F(History, TellsEventsThatTheBrokerHasForgotten) {
  const auto events = [&](std::optional<User> user, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"events", "--json", "--no-follow", "--since", "2d"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = gpumem(words, user);
    Events all;
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line);) {
      const Json one = Json::parse(line, nullptr, false);
      if (one.is_object())
        all.kinds.push_back(one["kind"].get<std::string>() + " " + one["session"].dump());
      else
        all.said += line;
    }
    return all;
  };
  auto history = start();
  client_with(mebibytes(8), kAnn)->leave();
  const auto bob = client_with(mebibytes(8), kBob);
  ASSERT_TRUE(eventually([&] {  // of a time that ends, gpumem-history alone tells, if it is there
    const auto [stored, said] = events({}, {"--until", "2150-01-01T00:00:00Z"});
    return said.empty() && std::ranges::count(stored, "closed 1") == 1 &&
           std::ranges::count(stored, "granted 2") == 1;
  }));
  const Events before = events({});
  EXPECT_EQ(before.said, "");
  broker_.stop();
  std::filesystem::remove(broker_.folder() + "/private/state/events.log");
  broker_.start_again();
  client_with(mebibytes(8), kBob)->leave();
  const std::vector<std::string> all = events({}).kinds, bobs = events(kBob).kinds;
  EXPECT_TRUE(std::ranges::equal(before.kinds, std::span(all).first(before.kinds.size())));
  EXPECT_GT(all.size(), before.kinds.size()) << "those of the next broker follow";
  EXPECT_EQ(std::set(all.begin(), all.end()).count("closed 1"), 1U);
  EXPECT_EQ(std::ranges::count(bobs, "opened 1"), 0) << "Ann's";
  EXPECT_EQ(std::ranges::count(bobs, "opened 2"), 1);
  EXPECT_EQ(events(kCat).kinds.size(), 0U);
  EXPECT_EQ(events({}, {"--tenant", "uid:10002"}).kinds, bobs);
  EXPECT_EQ(events({}, {"--until", "1d"}).kinds.size(), 0U);
  history->signal(SIGTERM);
  EXPECT_EQ(history->wait(), 0);
  const Events without = events({});
  EXPECT_EQ(std::ranges::count(without.kinds, "closed 1"), 0);
  EXPECT_NE(without.said.find("the events of the broker's own log"), std::string::npos) << without.said;
}

struct GroupHistory : History {
  GroupHistory() : History("[[tenant]]\nname = \"lab\"\ngroup = 10000\n") {}
};

TEST_F(GroupHistory, ShowsMembersTheTotalsAndToEachTheOwnJobs) {
  const auto history = start();
  for (const User& user : {kAnn, kBob}) {
    const auto one = client_with(mebibytes(8), user);
    ASSERT_TRUE(succeeded(one->ask({{"do", "begin_job"}, {"limit", mebibytes(8).count}})));
    ASSERT_TRUE(succeeded(one->ask(
        {{"do", "reserve_for_job"}, {"device", broker_.device().uuid()}, {"bytes", mebibytes(8).count}})));
    one->leave();
  }
  const auto ann = client_with(mebibytes(8), kAnn);
  ASSERT_TRUE(eventually([&] { return lent("lab") > 0; }));
  const auto users = [&](const std::string& list, std::optional<User> user = {}) {
    const Outcome outcome = gpumem({"account", "--by", list, "--json"}, user);
    const Json answer = Json::parse(outcome.output, nullptr, false);
    std::set<std::uint32_t> uids;
    if (outcome.status != 0) return uids;
    for (const Json& one : answer[list + "s"]) uids.insert(one["uid"].get<std::uint32_t>());
    return uids;
  };
  for (const std::string list : {"job", "session"}) {
    const std::set<std::uint32_t> both{kAnn.uid, kBob.uid};
    ASSERT_TRUE(eventually([&] { return users(list) == both; })) << list;
    EXPECT_EQ(users(list, kBob), std::set<std::uint32_t>{kBob.uid}) << list;
    EXPECT_EQ(users(list, kCat), std::set<std::uint32_t>{}) << list;
    EXPECT_NE(gpumem({"account", "--by", list}).output.find("8MiB"), std::string::npos) << "the peak";
  }
  EXPECT_EQ(rows(kAnn).count("lab"), 1U);
  EXPECT_EQ(rows(kBob).count("lab"), 1U) << "what Ann uses is in the total";
  EXPECT_EQ(rows(kCat).size(), 0U) << "a member before the first day";
  EXPECT_EQ(gpumem({"account", "--by", "job,user"}).status, 2);
}

TEST_F(History, SaysWhichFolderIsMissing) {
  for (const char* option : {"--state-dir", "--socket"}) {
    std::map<std::string, std::string> folders{{"--state-dir", folder_.path()}, {"--socket", socket()}};
    folders[option] = folder_ / "none/there";
    const Outcome outcome = run({.program = GPUMEM_TEST_HISTORY,
                                 .arguments = {"--runtime-dir", broker_.folder(), "--state-dir",
                                               folders["--state-dir"], "--socket", folders["--socket"]}});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.output.find(std::string("name another by ") + option), std::string::npos)
        << outcome.output;
  }
}

// Connections may come faster than it accepts them.
TEST_F(History, KeepsManyConnectionsThatWait) {
  const auto history = start();
  const auto bob = client_with(mebibytes(8), kBob);
  ASSERT_TRUE(eventually([&] { return rows().contains(""); }));
  history->signal(SIGSTOP);
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 500; ++i) {
    waiting.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ASSERT_EQ(connect_unix(waiting.back().get(), socket()), 0) << i;
  }
  waiting.clear();
  history->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return rows().contains(""); }));
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
