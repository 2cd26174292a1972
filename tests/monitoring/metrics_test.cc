// The metrics of a real broker: what they say, who may read them, and what bad scrapers cost.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <regex>

#include "base/system/unix_socket.h"
#include "tests/hostile/clients/as_user.h"
#include "tests/integration/fixture.h"
#include "tests/support/http_client.h"

namespace gpumem::test {
namespace {

using testing::HasSubstr;

constexpr const char* kPort = "[metrics]\nlisten = \"127.0.0.1:0\"\n";

struct Metrics : BrokerTest {
  explicit Metrics(const std::string& config = std::string(kSomeSpare) + kPort)
      : BrokerTest({.config = config}) {}

  std::string socket() const { return broker_.folder() + "/metrics.sock"; }
  // The broker says which the kernel chose.
  std::uint16_t port() const {
    std::smatch found;
    const std::string log = broker_.log();
    const std::regex words(R"(metrics on http://127\.0\.0\.1:(\d+)/metrics)");
    return std::regex_search(log, found, words) ? static_cast<std::uint16_t>(std::stoi(found[1]))
                                                : std::uint16_t{0};
  }
  static std::string scrape(const UniqueFd& connection) {
    EXPECT_TRUE(send_all(connection.get(), kLastScrape));
    return read_to_end(connection.get());
  }
  std::string scrape() const { return scrape(connect_to(socket())); }
  // Of a text that is a second old at most, so what has just happened may take that long to show.
  bool comes_to_say(const std::string& line) const {
    std::string text;
    const bool says = eventually([&] { return (text = scrape()).find(line + "\n") != std::string::npos; });
    EXPECT_TRUE(says) << line << "\nis not in\n" << text;
    return says;
  }
  std::string on_device(const std::string& name, const std::string& more, Bytes value) const {
    return name + "{" + more + "device=\"" + broker_.device().uuid() + "\"} " + std::to_string(value.count);
  }
  std::string me() const { return "tenant=\"uid:" + std::to_string(::geteuid()) + "\","; }
};

TEST_F(Metrics, SayTheSameByTheUnixSocketAndByThePort) {
  ASSERT_NE(port(), 0);
  const std::string pool = on_device("gpumem_device_pool_bytes", "", kPool);
  for (const std::string& text : {scrape(), scrape(connect_to_port(port()))}) {
    EXPECT_THAT(text, HasSubstr("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(text, HasSubstr("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    EXPECT_THAT(text, HasSubstr(pool));
    EXPECT_TRUE(text.ends_with("\n# EOF\n"));
  }
}

TEST_F(Metrics, TellOfASessionWhileItLivesAndAfterIt) {
  auto one = client_with(mebibytes(32));
  EXPECT_TRUE(comes_to_say(on_device("gpumem_tenant_granted_bytes_total", me(), mebibytes(32))));
  EXPECT_TRUE(comes_to_say(on_device("gpumem_tenant_in_use_bytes", me(), Bytes{})))
      << "the client says nothing else";
  EXPECT_TRUE(comes_to_say("gpumem_broker_sessions 1"));
  EXPECT_THAT(scrape(), HasSubstr("kind=\"active\"} " + std::to_string(mebibytes(32).count)));
  kill_and_reclaim(*one);
  EXPECT_TRUE(comes_to_say(on_device("gpumem_tenant_freed_bytes_total", me(), mebibytes(32))));
  EXPECT_TRUE(comes_to_say("gpumem_broker_sessions 0"));
  EXPECT_TRUE(comes_to_say("gpumem_broker_events_total{kind=\"died\"} 1"));
  EXPECT_TRUE(comes_to_say(on_device("gpumem_device_free_bytes", "", kPool)));
}

struct MetricsOfAQuickLook : Metrics {
  MetricsOfAQuickLook() : Metrics(std::string(kSomeSpare) + "reconcile_seconds = 1\n") {}
};

TEST_F(MetricsOfAQuickLook, ShowMemoryPastTheBroker) {
  const auto seen = [&] {
    return scrape().find("gpumem_device_reconciled_time_seconds{") != std::string::npos;
  };
  EXPECT_TRUE(eventually(seen));
  EXPECT_THAT(scrape(), HasSubstr(on_device("gpumem_device_past_broker_bytes", "", {})));
}

TEST_F(Metrics, AreServedUntilTheBrokerStops) {
  const UniqueFd held = connect_to(socket());
  send_all(held.get(), kScrape);
  read_until(held.get(), "# EOF\n");
  EXPECT_EQ(broker_.stop(), 0);
  EXPECT_EQ(read_to_end(held.get()), "");
  EXPECT_FALSE(std::filesystem::exists(socket()));
}

TEST_F(Metrics, AreNotOnAPortThatSomebodyElseHas) {
  BrokerProcess other({.config = std::string(kSomeSpare) +
                                 "[metrics]\nlisten = \"127.0.0.1:" + std::to_string(port()) + "\"\n"});
  EXPECT_THAT(other.log(), HasSubstr("metrics are not served on 127.0.0.1:"));
  EXPECT_TRUE(other.at_rest()) << "memory is lent all the same";
}

struct MetricsByDefault : Metrics {
  MetricsByDefault() : Metrics(kSomeSpare) {}
};

TEST_F(MetricsByDefault, AreOnNoPort) {
  EXPECT_EQ(port(), 0);
  EXPECT_THAT(scrape(), HasSubstr("gpumem_broker_info{"));
}

struct MetricsOfManyUsers : Metrics {
  explicit MetricsOfManyUsers(const std::string& more = {}) : Metrics(shared(more)) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  bool may_connect(uid_t uid, gid_t gid) const {
    const AsUser user(uid, gid);
    const UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return connect_unix(connection.get(), socket()) == 0;
  }
  gid_t group() const {
    struct stat found {};
    EXPECT_EQ(::stat(socket().c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0660u);
    return found.st_gid;
  }
};

TEST_F(MetricsOfManyUsers, AreForRootAloneWithoutAnAdminGroup) {
  EXPECT_EQ(group(), ::getegid());
  EXPECT_FALSE(may_connect(10'001, BrokerProcess::kGroup)) << "which may borrow memory";
  EXPECT_THAT(scrape(), HasSubstr("gpumem_broker_info{"));
}

struct MetricsOfAdministrators : MetricsOfManyUsers {
  MetricsOfAdministrators() : MetricsOfManyUsers("admin_group = 10777\n") {}
};

TEST_F(MetricsOfAdministrators, AreForTheAdminGroup) {
  EXPECT_EQ(group(), 10'777u);
  EXPECT_TRUE(may_connect(10'001, 10'777));
  EXPECT_FALSE(may_connect(10'001, BrokerProcess::kGroup));
}

struct MetricsOfAGroup : MetricsOfManyUsers {
  MetricsOfAGroup() : MetricsOfManyUsers("admin_group = 10777\n[metrics]\ngroup = 10888\n") {}
};

TEST_F(MetricsOfAGroup, AreForTheGroupThatIsConfigured) {
  EXPECT_EQ(group(), 10'888u);
  EXPECT_TRUE(may_connect(10'001, 10'888));
  EXPECT_FALSE(may_connect(10'001, 10'777));
}

TEST_F(MetricsOfAGroup, FollowTheirGroupAndKeepTheirPortUntilARestart) {
  broker_.reload(shared("admin_group = 10777\n[metrics]\ngroup = 10999\nlisten = \"127.0.0.1:9400\"\n"));
  EXPECT_TRUE(may_connect(10'001, 10'999));
  EXPECT_FALSE(may_connect(10'001, 10'888));
  EXPECT_THAT(broker_.log(), HasSubstr("[metrics] listen stays '': '127.0.0.1:9400' needs a restart"));
}

// Bad input on both sockets: clients still borrow, scrapers still get answers, and the broker returns to its
// former state.
struct HostileScrapers : Metrics {
  std::vector<UniqueFd> attack(int each) {
    std::vector<UniqueFd> connections;
    for (int i = 0; i < each; ++i) {
      connections.push_back(connect_to(socket()));
      connections.push_back(connect_to_port(port()));
    }
    return connections;
  }
  void expect_service() {
    auto one = client_with(mebibytes(8));
    EXPECT_TRUE(succeeded(one->ask({{"do", "ping"}})));
    EXPECT_EQ(one->leave(), 0);
    for (const std::string& text : {scrape(), scrape(connect_to_port(port()))})
      EXPECT_TRUE(text.ends_with("\n# EOF\n")) << text.size() << " bytes, " << text.substr(0, 200);
  }
};

TEST_F(HostileScrapers, ThatHoldAThousandConnectionsCostNothing) {
  scrape();
  const std::size_t threads = broker_.threads(), descriptors = broker_.open_descriptors().size();
  const auto held = attack(500);
  expect_service();
  EXPECT_LE(broker_.open_descriptors().size(), descriptors + 40) << "16 for each socket, and one of gRPC's";
  EXPECT_EQ(broker_.threads(), threads);
}

TEST_F(HostileScrapers, ThatAskAndNeverReadCostNothing) {
  const auto held = attack(200);
  for (const UniqueFd& one : held) {
    for (int i = 0; i < 8; ++i)
      static_cast<void>(::send(one.get(), kScrape.data(), kScrape.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  expect_service();
}

TEST_F(HostileScrapers, ThatSendGarbageAreAnsweredOrCut) {
  const std::string garbage = "\x16\x03\x01 not http\r\n\r\n",
                    header = "GET /metrics HTTP/1.1\r\nX: " + std::string(1 << 20, 'x');
  for (const std::string& bytes : {garbage, header}) {
    for (const UniqueFd& one : attack(10)) {
      static_cast<void>(send_all(one.get(), bytes));
      EXPECT_TRUE(is_closed_soon(one.get()));
    }
  }
  expect_service();
}

TEST_F(HostileScrapers, AreCounted) {
  const auto held = attack(30);
  EXPECT_TRUE(eventually([&] {
    const std::string text = scrape();
    std::smatch found;
    const std::regex words("gpumem_broker_refusals_total\\{bound=\"metrics_connections\"\\} (\\d+)");
    return std::regex_search(text, found, words) && std::stoi(found[1]) >= 2 * (30 - 16);
  }));
}

struct FewSessions : Metrics {
  FewSessions() : Metrics(std::string(kSomeSpare) + "max_sessions = 1\n") {}
};

TEST_F(FewSessions, RefusedByTheirBoundAreCounted) {
  auto one = client();
  ClientProcess other(broker_.folder());
  EXPECT_TRUE(failed_with(other.connect(), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(comes_to_say("gpumem_broker_refusals_total{bound=\"sessions\"} 1"));
}

}  // namespace
}  // namespace gpumem::test
