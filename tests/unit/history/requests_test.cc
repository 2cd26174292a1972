#include "daemon/history/requests.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/unit/history/samples.h"

namespace gpumem::history {
namespace {

using testing::ElementsAre;

const Peer kRoot{0, {0}}, kAnn{1001, {1001}}, kBob{1002, {1002}}, kKeeper{1005, {1005, 77}};

struct RequestsTest : testing::Test {
  RequestsTest() {
    auto store = Store::open(file, kRoom);
    add(*store, sample_at(0, {account("", {}, 60), account("lab", {}, 30), account("ann", 1001, 10),
                              account("uid:1002", 1002, 20), account("students", {}, 30)}));
    // The rule of ann has another user now.
    add(*store, sample_at(1, {account("", {}, 67), account("ann", 1003, 17)}));
  }
  Answer ask(const Peer& peer, const std::string& query = "", const std::string& path = "/v1/usage") {
    const std::string method = path == "/v1/usage" ? "GET" : "POST";
    return requests.answer(peer, method, path + (query.empty() ? "" : "?" + query));
  }
  // Each row: its columns that are texts or numbers of users, and the amount.
  std::multiset<std::string> rows(const Peer& peer, const std::string& query) {
    std::multiset<std::string> all;
    const Answer answer = ask(peer, query);
    EXPECT_EQ(answer.status, 200U) << answer.body.dump();
    for (const Json& row : answer.body["rows"]) {
      std::string words;
      for (const char* name : {"tenant", "uid", "device", "day"})
        if (row.contains(name)) words += row[name].is_null() ? "(all) " : row[name].dump() + " ";
      all.insert(words + std::to_string(row["lent"].get<int>()));
    }
    return all;
  }

  std::optional<std::uint32_t> admins = 77;
  test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "history.db";
  const Requests requests{{.file = file,
                           .admin_group = [this] { return admins; },
                           .problem = [] { return "the disk is full"; },
                           .now = [] { return kMonday + 10; }}};
};

TEST_F(RequestsTest, ShowEachUserTheOwnRowsAndAdministratorsAll) {
  const std::multiset<std::string> all{"(all) 67", "\"ann\" 17", "\"lab\" 30", "\"students\" 30",
                                       "\"uid:1002\" 20"};
  EXPECT_EQ(rows(kRoot, "by=tenant"), all);
  EXPECT_EQ(rows(kKeeper, "by=tenant"), all);
  EXPECT_EQ(rows(kAnn, "by=tenant"), std::multiset<std::string>{"\"ann\" 10"})
      << "of the time when it was hers";
  EXPECT_EQ(rows(kBob, "by=tenant"), std::multiset<std::string>{"\"uid:1002\" 20"});
  EXPECT_EQ(rows({1004, {1004}}, "by=tenant"), std::multiset<std::string>{});
  admins.reset();
  EXPECT_EQ(rows(kKeeper, "by=tenant"), std::multiset<std::string>{}) << "there is no such group any more";
}

TEST_F(RequestsTest, SumUpWhatCanBeAdded) {
  const std::string day = "\"2026-11-02\" ";
  EXPECT_EQ(rows(kRoot, "by=day"), std::multiset<std::string>{day + "67"}) << "of the device";
  EXPECT_EQ(rows(kBob, "by=day"), std::multiset<std::string>{day + "20"});
  EXPECT_EQ(rows(kRoot, "by=user"), (std::multiset<std::string>{"1001 10", "1002 20", "1003 7"}));
  EXPECT_EQ(rows(kRoot, "by=device"), std::multiset<std::string>{"\"GPU-1\" 67"});
  EXPECT_EQ(rows(kBob, ""), std::multiset<std::string>{"\"uid:1002\" \"GPU-1\" 20"});
  EXPECT_EQ(rows(kRoot, "by=tenant&since=" + std::to_string(kMonday + 1)),
            (std::multiset<std::string>{"(all) 7", "\"ann\" 7"}));
}

TEST_F(RequestsTest, ForgetAUserForAdministratorsOnly) {
  EXPECT_EQ(ask(kBob, "uid=1002", "/v1/forget").status, 403U);
  EXPECT_EQ(ask(kKeeper, "uid=1002", "/v1/forget").body["forgotten"], 1);
  EXPECT_EQ(rows(kBob, "by=tenant"), std::multiset<std::string>{});
  EXPECT_EQ(rows(kRoot, "by=tenant").count("\"uid:1002 until 2026-11-02T00:00:10Z\" 20"), 1U);
  auto store = Store::open(file, kRoom);
  add(*store, sample_at(10, {account("uid:1002", 1002, 25)}));
  EXPECT_EQ(rows(kBob, "by=tenant"), std::multiset<std::string>{"\"uid:1002\" 5"}) << "what came later";
}

TEST_F(RequestsTest, RefuseWhatIsNotAQuestion) {
  for (const char* query : {"by=", "by=all", "by=day,day", "since=-1", "since=x", "since=9&until=9",
                            "limit=1", "by=day;drop", "since=99999999999999999999", "since=253402300801"}) {
    const Answer answer = ask(kRoot, query);
    EXPECT_EQ(answer.status, 400U) << query;
    EXPECT_TRUE(answer.body["error"].is_string());
  }
  EXPECT_EQ(ask(kRoot, "uid=4294967296", "/v1/forget").status, 400U);
  EXPECT_EQ(ask(kRoot, "", "/v2/usage").status, 404U);
  EXPECT_EQ(requests.answer(kRoot, "DELETE", "/v1/usage").status, 404U);
  EXPECT_EQ(ask(kBob).body["problem"], "the disk is full") << "a user learns why rows are missing";
  std::filesystem::remove(file);
  EXPECT_EQ(ask(kRoot).status, 404U);
}

}  // namespace
}  // namespace gpumem::history
