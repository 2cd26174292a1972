#include <sys/socket.h>
#include <unistd.h>

#include "base/unix_socket.h"
#include "daemon/history/history_server.h"
#include "tests/support/http_client.h"
#include "tests/unit/history/samples.h"

namespace gpumem::history {
namespace {

constexpr const char* kQuestion = "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n";

/// A server of a socket of its own, whose answers tell who asked for what.
struct HistoryServerTest : testing::Test {
  HistoryServerTest() : server(serving(listening(), answer)) { server.start(); }
  UniqueFd listening() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(bind_unix(socket.get(), folder / "s"), 0);
    EXPECT_EQ(::listen(socket.get(), 16), 0);
    return socket;
  }
  static Answer answer(const Peer& peer, const std::string& method, const std::string& target) {
    return {200,
            Json{{"uid", peer.uid}, {"has_group", !peer.gids.empty()}, {"asked", method + " " + target}}};
  }
  UniqueFd connect() const { return test::connect_to(folder / "s"); }
  /// All that comes until the server closes; it may close before it is asked.
  static std::string said(const UniqueFd& socket, const std::string& question) {
    test::send_all(socket.get(), question);
    return test::read_to_end(socket.get());
  }

  test::TemporaryFolder folder;
  http::HttpServer server;
};

TEST_F(HistoryServerTest, AsksTheKernelWhoCalls) {
  const std::string text = said(connect(), kQuestion);
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200")) << text;
  const Json body = Json::parse(text.substr(text.find("\r\n\r\n")), nullptr, false);
  EXPECT_EQ(body, (Json{{"uid", ::getuid()}, {"has_group", true}, {"asked", "GET /a?b"}}));
}

TEST_F(HistoryServerTest, RefusesWhatIsNoRequestOrTooMuch) {
  for (const std::string& bad : {std::string("\r\n\r\nnonsense\r\n\r\n"), "GET /" + std::string(9000, 'x'),
                                 std::string("GET / HTTP/1.1\r\nContent-Length: 99\r\n\r\n")})
    EXPECT_TRUE(said(connect(), bad).starts_with("HTTP/1.1 4")) << bad.substr(0, 20);
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < kMostOfUser; ++i) silent.push_back(connect());
  EXPECT_EQ(said(connect(), kQuestion), "") << "one user has only so many connections";
  EXPECT_NE(said(silent.back(), kQuestion), "") << "those that it has are served";
}

}  // namespace
}  // namespace gpumem::history
