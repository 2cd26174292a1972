#include "daemon/history/requests.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/unit/history/samples.h"

namespace gpumem::history {
namespace {

using testing::ElementsAre;

const Peer kRoot{0, {0}}, kAnn{1001, {1001}}, kBob{1002, {1002}}, kKeeper{1005, {1005, 77}};
const Peer kDan{1007, {1007, 50}}, kEve{1008, {50}};  // members of lab

struct RequestsTest : testing::Test {
  RequestsTest() {
    auto store = Store::open(file, kRoom);
    add(*store, sample_at(0, {account("", {}, 60), account("lab", {}, 30), account("ann", 1001, 10),
                              account("uid:1002", 1002, 20), account("students", {}, 30)}));
    // The rule of ann has another user now.
    add(*store, sample_at(1, {account("", {}, 67), account("ann", 1003, 17)}));
  }
  Answer ask(const Peer& peer, const std::string& query = "", const std::string& path = "/v1/usage") {
    const std::string method = path == "/v1/forget" ? "POST" : "GET";
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

  // Each row of an answer: the columns of these names.
  std::vector<std::string> list(const Peer& peer, const std::string& name,
                                const std::vector<const char*>& columns, const std::string& query = "") {
    std::vector<std::string> all;
    const Answer answer = ask(peer, query, "/v1/" + name);
    EXPECT_EQ(answer.status, 200U) << answer.body.dump();
    for (const Json& row : answer.body[name]) {
      std::string words;
      for (const char* column : columns) words += row.value(column, Json()).dump() + " ";
      all.push_back(words);
    }
    return all;
  }

  std::int64_t now = kMonday + 10;
  Rights rights{77, {{.tenant = "ann", .uid = 1003}, {.tenant = "lab", .gid = 50}}};
  test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "history.db";
  const Requests requests{{.file = file,
                           .rights = [this] { return rights; },
                           .problem = [] { return "the disk is full"; },
                           .now = [this] { return now; }}};
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
  rights.admin_group.reset();
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

TEST_F(RequestsTest, ShowMembersTheTotalsOfTheirTenantFromTheirFirstDayOn) {
  EXPECT_EQ(rows(kDan, "by=tenant"), std::multiset<std::string>{}) << "without a session there";
  now = kMonday + 2 * kDay;
  auto store = Store::open(file, kRoom);
  Sample tuesday = sample_at(kDay, {account("lab", {}, 45), account("ann", 1003, 27)});
  tuesday.events = {event(-5, "lab", 1008), event(kDay - 5, "lab", 1008),
                    event(kDay + 5, "lab", 1007, {{"closing", {{"peak", 7}}}}),
                    event(kDay + 6, "lab", 1008, {{"closing", {{"peak", 8}}}}), event(kDay + 7, "ann", 1003)};
  for (const std::uint32_t uid : {1007, 1008})
    tuesday.closed.push_back({.time = kMonday + kDay, .tenant = "lab", .uid = uid, .session = uid});
  tuesday.closed.push_back({.time = kMonday + kDay, .tenant = "lab", .uid = 1007, .job = 9});
  tuesday.position = {1, 1};
  add(*store, tuesday);
  EXPECT_EQ(rows(kDan, "by=tenant"), std::multiset<std::string>{"\"lab\" 15"});
  EXPECT_EQ(rows(kEve, "by=tenant"), std::multiset<std::string>{"\"lab\" 45"});
  EXPECT_EQ(rows(kDan, "by=user"), std::multiset<std::string>{});
  EXPECT_THAT(list(kDan, "events", {"uid", "closing"}), ElementsAre("1007 {\"peak\":7} ", "1008 null "))
      << "what another had is hidden";
  EXPECT_EQ(list(kEve, "events", {"uid"}).size(), 4U);
  EXPECT_EQ(list(kRoot, "events", {"uid"}).size(), 5U);
  EXPECT_EQ(list(kBob, "events", {"uid"}).size(), 0U);
  EXPECT_THAT(list(kDan, "sessions", {"session"}), ElementsAre("1007 "));
  EXPECT_THAT(list(kDan, "jobs", {"job"}), ElementsAre("9 "));
  EXPECT_THAT(list(kEve, "jobs", {"job"}), ElementsAre());
  EXPECT_EQ(list(kKeeper, "sessions", {"session"}).size(), 2U);
  rights.members[0].uid = 1007;
  EXPECT_EQ(rows(kDan, "by=tenant"), std::multiset<std::string>{}) << "a user with a rule is no member";
  rights.members[0].uid = 1003;
  EXPECT_EQ(ask(kRoot, "uid=1007", "/v1/forget").status, 200U);
  EXPECT_EQ(rows(kDan, "by=tenant"), std::multiset<std::string>{}) << "the next person has not come yet";
  EXPECT_EQ(list(kDan, "events", {"uid"}).size() + list(kDan, "jobs", {"job"}).size(), 0U);
}

TEST_F(RequestsTest, ShowAUserDenialsBeforeThereIsAnAccount) {
  auto store = Store::open(file, kRoom);
  Sample sample = sample_at(5, {});
  sample.counts[{kMonday + 5, "uid:1009", "GPU-1"}] = {.denied = 2};
  sample.counts[{kMonday + 5, "greta", "GPU-1"}] = {.denied = 3};
  sample.members = {{.tenant = "greta", .uid = 1010}};
  add(*store, sample);
  for (const auto& [uid, denied] : {std::pair{1009U, 2}, std::pair{1010U, 3}})
    EXPECT_EQ(ask({uid, {uid}}, "by=tenant").body["rows"][0]["denied"], denied);
}

TEST_F(RequestsTest, ShowPodsByNamespace) {
  auto store = Store::open(file, kRoom);
  add(*store, sample_at(5, {account("pod web/one", {}, 3), account("pod web/two", {}, 4),
                            account("pod 1-2-3", {}, 5), account("claim web/shared", {}, 8)}));
  const auto sums = [&](const std::string& by) {
    std::vector<std::string> all;
    const Answer answer = ask(kRoot, "by=" + by);
    for (const Json& row : answer.body["rows"])
      all.push_back(row[by].get<std::string>() + " " + std::to_string(row["lent"].get<int>()));
    return all;
  };
  EXPECT_THAT(sums("namespace"), ElementsAre("web 15"));
  EXPECT_THAT(sums("pod"), ElementsAre("web/one 3", "web/two 4"));
}

TEST_F(RequestsTest, TellManyEventsInParts) {
  auto store = Store::open(file, kRoom);
  Sample sample = sample_at(5, {});
  for (std::size_t i = 0; i < kMostRows + 3; ++i) sample.events.push_back(event(5, "uid:1002", 1002));
  sample.position = {1, 1};
  add(*store, sample);
  const Answer first = ask(kBob, "", "/v1/events");
  EXPECT_EQ(first.body["events"].size(), kMostRows);
  const std::string after = first.body["after"].dump();
  const Answer rest = ask(kBob, "after=" + after, "/v1/events");
  EXPECT_EQ(rest.body["events"].size(), 3U);
  EXPECT_TRUE(rest.body["after"].is_null());
  EXPECT_EQ(list(kBob, "events", {}, "until=" + std::to_string(kMonday + 5)).size(), 0U);
  EXPECT_EQ(list(kBob, "events", {}, "after=" + after + "&since=" + std::to_string(kMonday + 5)).size(), 3U);
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
  EXPECT_EQ(ask(kRoot, "by=day,day").body["error"], "'day' is named twice");
  EXPECT_EQ(ask(kRoot, "after=x", "/v1/events").status, 400U);
  EXPECT_EQ(ask(kRoot, "uid=4294967296", "/v1/forget").status, 400U);
  EXPECT_EQ(ask(kRoot, "", "/v2/usage").status, 404U);
  EXPECT_EQ(requests.answer(kRoot, "DELETE", "/v1/usage").status, 404U);
  EXPECT_EQ(ask(kBob).body["problem"], "the disk is full") << "a user learns why rows are missing";
  std::filesystem::remove(file);
  EXPECT_EQ(ask(kRoot).status, 404U);
}

}  // namespace
}  // namespace gpumem::history
