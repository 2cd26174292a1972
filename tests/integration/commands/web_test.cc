// `gpumem web`: what it serves, to whom, and what it refuses.
#include <sys/socket.h>
#include <sys/stat.h>

#include <regex>

#include "base/system/unix_socket.h"
#include "tests/hostile/clients/as_user.h"
#include "tests/integration/fixture.h"
#include "tests/support/http_client.h"

namespace gpumem::test {
namespace {

std::vector<std::string> web(const std::string& folder, std::vector<std::string> more) {
  more.insert(more.begin(), {"web", "--runtime-dir", folder});
  if (::geteuid() == 0) more.emplace_back("--as-administrator");
  return more;
}

/// A `gpumem web` that serves.
class WebProcess {
 public:
  WebProcess(const std::string& runtime_folder, std::vector<std::string> arguments)
      : log_(::open((folder_ / "log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)),
        child_({.program = cli_program(),
                .arguments = web(runtime_folder, std::move(arguments)),
                .environment = {{"XDG_RUNTIME_DIR", folder_.path()}},
                .output = log_.get()}) {
    EXPECT_TRUE(eventually([&] { return said().find("Ctrl-C ends it") != std::string::npos; })) << said();
    port_ = static_cast<std::uint16_t>(std::stoi("0" + found(R"(http://127\.0\.0\.1:(\d+)/#token=)")));
  }

  std::string said() const { return read_file(folder_ / "log"); }
  std::string socket() const { return (folder_ / "gpumem-web.sock").string(); }
  std::string found(const std::string& pattern) const {
    std::smatch match;
    const std::string text = said();
    return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : "";
  }
  std::uint16_t port() const { return port_; }
  std::string token() const { return found("#token=([0-9a-f]{64})\n"); }
  UniqueFd connect() const { return port() != 0 ? connect_to_port(port()) : connect_to(socket()); }
  Child& child() { return child_; }

 private:
  TemporaryFolder folder_;
  UniqueFd log_;
  Child child_;
  std::uint16_t port_ = 0;  ///< 0: it listens on a socket
};

std::string status_of(const std::string& answer) { return answer.substr(0, answer.find('\r')); }

struct Web : BrokerTest {
  explicit Web(std::vector<std::string> arguments = {}, const std::string& config = shared())
      : BrokerTest({.config = config}), web_(broker_.folder(), std::move(arguments)) {}

  std::string ask(const std::string& request) const {
    const UniqueFd connection = web_.connect();
    EXPECT_TRUE(send_all(connection.get(), request + "Connection: close\r\n\r\n"));
    return read_to_end(connection.get());
  }
  static std::string get(const std::string& path, const std::string& fields = "Host: localhost\r\n") {
    return "GET " + path + " HTTP/1.1\r\n" + fields;
  }
  UniqueFd open_stream(const std::string& fields = "Host: localhost\r\n") const {
    UniqueFd stream = web_.connect();
    EXPECT_TRUE(send_all(stream.get(), get("/api/stream", fields) + "\r\n"));
    return stream;
  }

  WebProcess web_;
};

TEST_F(Web, IsOnASocketForItsUserAlone) {
  struct stat found = {};
  ASSERT_EQ(::stat(web_.socket().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);
  const std::string page = ask(get("/"));
  EXPECT_EQ(status_of(page), "HTTP/1.1 200 OK");
  for (const char* field : {"X-Content-Type-Options: nosniff", "frame-ancestors 'none'", "default-src 'none'",
                            "script-src 'sha256-", "Cache-Control: no-store", "Referrer-Policy: no-referrer",
                            "Cross-Origin-Resource-Policy: same-origin"})
    EXPECT_NE(page.find(field), std::string::npos) << field;
  EXPECT_EQ(page.find("Access-Control"), std::string::npos);
  EXPECT_EQ(page.find("unsafe"), std::string::npos);
  web_.child().signal(SIGINT);
  EXPECT_EQ(web_.child().wait(), 0);
  EXPECT_NE(::stat(web_.socket().c_str(), &found), 0) << "the socket goes with it";
}

TEST_F(Web, LeavesAnotherSocketInItsPlace) {
  std::filesystem::remove(web_.socket());
  const UniqueFd other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind_unix(other.get(), web_.socket()), 0);
  web_.child().signal(SIGINT);
  EXPECT_EQ(web_.child().wait(), 0);
  EXPECT_TRUE(std::filesystem::is_socket(web_.socket()));
}

TEST_F(Web, TellsOfTheLastHourAndThenOfEachSecond) {
  auto client = client_with(mebibytes(40));
  const UniqueFd stream = open_stream();
  EXPECT_NE(read_until(stream.get(), "\n\n").find("event: hello"), std::string::npos);
  const std::string sample = read_until(stream.get(), "\"charged\":41943040");
  EXPECT_NE(sample.find("event: sample"), std::string::npos);
  EXPECT_NE(read_until(stream.get(), "\"extents\":[{").find("\"kind\":\"session\""), std::string::npos);
  EXPECT_EQ(client->leave(), 0);
}

// Each page is opened right after an event, which it may be told of as one of the last hour, or as a new one.
TEST_F(Web, TellsAPageOfEachEventOnce) {
  for (int i = 1; i <= 4; ++i) {
    auto client = client_with(mebibytes(2));
    std::string told;
    const UniqueFd stream = open_stream();
    const auto times = [&] {
      int count = 0;
      const std::string words = "\"kind\":\"granted\"";
      for (auto at = told.find(words); at != std::string::npos; at = told.find(words, at + 1)) ++count;
      return count;
    };
    while (times() < i) {
      const std::string more = read_until(stream.get(), "\n\n");
      ASSERT_FALSE(more.empty()) << told;
      told += more;
    }
    for (int more = 0; more < 2; ++more) {  // the first sample has no events
      told += read_until(stream.get(), "event: sample");
      told += read_until(stream.get(), "\n\n");
    }
    EXPECT_EQ(times(), i) << told;
    EXPECT_EQ(client->leave(), 0);
  }
}

TEST_F(Web, GoesOnWithTheNextBroker) {
  const UniqueFd stream = open_stream();
  read_until(stream.get(), "event: sample");
  broker_.kill();
  read_until(stream.get(), "event: problem");
  broker_.start_again();
  read_until(stream.get(), "event: sample");
}

TEST_F(Web, HasRoomForEightPages) {
  std::vector<UniqueFd> asked, streams;
  for (int i = 0; i < 16; ++i) asked.push_back(open_stream());
  for (UniqueFd& one : asked) {
    if (read_until(one.get(), "\r\n").find(" 200 ") != std::string::npos) streams.push_back(std::move(one));
  }
  EXPECT_EQ(streams.size(), 8) << "all at once";
  EXPECT_EQ(status_of(ask(get("/api/stream"))), "HTTP/1.1 503 Service Unavailable");
  streams.pop_back();
  EXPECT_TRUE(eventually([&] {
    const UniqueFd stream = open_stream();
    return read_until(stream.get(), "\r\n").find(" 200 ") != std::string::npos;
  })) << "a page that was closed makes room";
}

TEST_F(Web, StreamsAreNotClosedToMakeRoomForConnections) {
  const UniqueFd stream = open_stream();
  read_until(stream.get(), "event: sample");
  std::vector<UniqueFd> held;
  for (int i = 0; i < 1000; ++i) held.push_back(web_.connect());
  EXPECT_EQ(status_of(ask(get("/"))), "HTTP/1.1 200 OK");
  read_until(stream.get(), "event: sample");
}

TEST_F(Web, HasAccountsOfTheBrokerAndSaysWhereThoseOfTheHistoryAre) {
  auto client = client_with(mebibytes(40));
  const std::string answer = ask(get("/api/accounts"));
  EXPECT_EQ(status_of(answer), "HTTP/1.1 200 OK");
  EXPECT_NE(answer.find("\"tenant\":"), std::string::npos) << answer;
  EXPECT_EQ(status_of(ask(get("/api/accounts?since=x"))), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status_of(ask(get("/api/accounts?since=-1"))), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(client->leave(), 0);
}

struct Refused {
  const char* name;
  const char* request;
  unsigned status;
};

// `TOKEN` stands for the token.
const Refused kRequests[] = {
    {"APage", "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n", 200},
    {"APageOfIpv6", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n", 200},
    {"Data", "GET /api/accounts HTTP/1.1\r\nHost: localhost:80\r\nX-Gpumem-Token: TOKEN\r\n", 200},
    {"DataOfItsOwnOrigin",
     "GET /api/accounts HTTP/1.1\r\nHost: localhost:80\r\nOrigin: http://localhost:80\r\n"
     "Sec-Fetch-Site: same-origin\r\nX-Gpumem-Token: TOKEN\r\n",
     200},
    {"NoHost", "GET / HTTP/1.1\r\n", 403},
    {"AnotherHost", "GET / HTTP/1.1\r\nHost: rebound.example\r\n", 403},
    {"AHostThatBeginsWell", "GET / HTTP/1.1\r\nHost: localhost.example\r\n", 403},
    {"AHostWithAUser", "GET / HTTP/1.1\r\nHost: localhost:80@example\r\n", 403},
    {"TwoHosts", "GET / HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example\r\n", 403},
    {"AProxysPath", "GET http://rebound.example/ HTTP/1.1\r\nHost: localhost\r\nX-Gpumem-Token: TOKEN\r\n",
     404},
    {"Head", "HEAD / HTTP/1.1\r\nHost: localhost\r\n", 405},
    {"Options",
     "OPTIONS /api/stream HTTP/1.1\r\nHost: localhost\r\nOrigin: http://example\r\n"
     "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: x-gpumem-token\r\n",
     405},
    {"Delete", "DELETE / HTTP/1.1\r\nHost: localhost\r\n", 405},
    {"ABody", "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n", 400},
    {"Chunks", "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n", 400},
    {"TwoLengths", "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 5\r\n", 400},
    {"NoToken", "GET /api/stream HTTP/1.1\r\nHost: localhost\r\n", 401},
    {"AShortToken", "GET /api/stream HTTP/1.1\r\nHost: localhost\r\nX-Gpumem-Token: 0\r\n", 401},
    {"AnotherToken",
     "GET /api/stream HTTP/1.1\r\nHost: localhost\r\nX-Gpumem-Token: "
     "0000000000000000000000000000000000000000000000000000000000000000\r\n",
     401},
    {"TwoTokens",
     "GET /api/stream HTTP/1.1\r\nHost: localhost\r\nX-Gpumem-Token: TOKEN\r\nX-Gpumem-Token: TOKEN\r\n",
     401},
    {"AForeignOrigin",
     "GET /api/stream HTTP/1.1\r\nHost: localhost\r\nOrigin: http://example\r\nX-Gpumem-Token: TOKEN\r\n",
     403},
    {"AnOriginOfAnotherPort",
     "GET /api/stream HTTP/1.1\r\nHost: localhost:80\r\nOrigin: http://localhost:81\r\nX-Gpumem-Token: "
     "TOKEN\r\n",
     403},
    {"NoOrigin", "GET /api/stream HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nX-Gpumem-Token: TOKEN\r\n",
     403},
    {"AnotherSite",
     "GET /api/stream HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nX-Gpumem-Token: TOKEN\r\n",
     403},
    {"AnUnknownPath", "GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\nX-Gpumem-Token: TOKEN\r\n", 404},
};

struct WebPort : Web {
  WebPort() : Web({"--listen", "127.0.0.1:0"}) {}
};

TEST_F(WebPort, AnswersRequestsOfItsOwnPageAlone) {
  ASSERT_NE(web_.token(), "") << web_.said();
  for (const Refused& one : kRequests) {
    const std::string request = std::regex_replace(one.request, std::regex("TOKEN"), web_.token());
    const std::string answer = ask(request);
    EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 " + std::to_string(one.status)) << one.name << "\n" << answer;
    EXPECT_EQ(answer.find("Access-Control"), std::string::npos) << one.name;
    const bool is_read = one.status != 400;
    EXPECT_EQ(answer.find("X-Content-Type-Options: nosniff") != std::string::npos, is_read) << one.name;
  }
}

TEST_F(WebPort, ShowsNothingToAnotherUserWithoutTheToken) {
  GPUMEM_NEEDS_ROOT();
  const AsUser stranger(10'001, BrokerProcess::kGroup);
  EXPECT_EQ(status_of(ask(get("/api/stream"))), "HTTP/1.1 401 Unauthorized");
  EXPECT_EQ(status_of(ask(get("/api/accounts"))), "HTTP/1.1 401 Unauthorized");
}

TEST_F(Web, SocketIsClosedToAnotherUser) {
  GPUMEM_NEEDS_ROOT();
  const AsUser stranger(10'001, BrokerProcess::kGroup);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect_unix(socket.get(), web_.socket()), -1);
  EXPECT_EQ(errno, EACCES);
}

struct WebRefuses : testing::Test {
  Outcome start(std::vector<std::string> arguments, bool as_administrator = true) {
    auto words = web(folder_.path(), std::move(arguments));
    if (!as_administrator) std::erase(words, "--as-administrator");
    return run({.program = cli_program(), .arguments = words, .environment = {{"XDG_RUNTIME_DIR", ""}}});
  }
  TemporaryFolder folder_;
};

TEST_F(WebRefuses, RootWithoutAWord) {
  GPUMEM_NEEDS_ROOT();
  const Outcome refused = start({"--listen", "127.0.0.1:0"}, false);
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.output.find("add --as-administrator"), std::string::npos) << refused.output;
}

TEST_F(WebRefuses, AddressesThatOthersReach) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:80", "127.0.0.2:80", "localhost:80", "80"}) {
    const Outcome refused = start({"--listen", address});
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_NE(refused.output.find("give"), std::string::npos) << refused.output;
  }
}

TEST_F(WebRefuses, PlacesThatAreTaken) {
  const WebProcess first(folder_.path(), {"--listen", "127.0.0.1:0"});
  const Outcome taken = start({"--listen", "127.0.0.1:" + std::to_string(first.port())});
  EXPECT_EQ(taken.status, 1);
  EXPECT_NE(taken.output.find("port 0 stands for any free one"), std::string::npos) << taken.output;

  const WebProcess other(folder_.path(), {});
  EXPECT_NE(start({"--socket", other.socket()}).output.find("is in use"), std::string::npos);
  const std::string file = (folder_ / "file").string();
  std::filesystem::create_directory(file);
  EXPECT_NE(start({"--socket", file}).output.find("is no socket"), std::string::npos);
  EXPECT_NE(start({}).output.find("XDG_RUNTIME_DIR is not set"), std::string::npos);
}

TEST_F(WebRefuses, NoSocketThatNobodyListensAt) {
  const std::string path = (folder_ / "socket").string();
  for (int i = 0; i < 2; ++i) {
    WebProcess web(folder_.path(), {"--socket", path});
    EXPECT_TRUE(std::filesystem::is_socket(path));
    web.child().kill();
    EXPECT_TRUE(std::filesystem::is_socket(path)) << "it is left behind, and the next one takes its place";
  }
}

}  // namespace
}  // namespace gpumem::test
