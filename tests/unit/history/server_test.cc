#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "daemon/history/history_server.h"
#include "tests/unit/history/samples.h"

namespace gpumem::history {
namespace {

constexpr const char* kQuestion = "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n";

/// A server of a socket of its own, whose answers tell who asked for what.
struct HistoryServerTest : testing::Test {
  HistoryServerTest() : server(loop, listening(), answer), thread([this] { loop.run(); }) {}
  ~HistoryServerTest() override {
    loop.stop();
    thread.join();
  }
  UniqueFd listening() {
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (folder / "s").c_str());
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket.get(), 16), 0);
    return socket;
  }
  static Answer answer(const Peer& peer, const std::string& method, const std::string& target) {
    return {200,
            Json{{"uid", peer.uid}, {"has_group", !peer.gids.empty()}, {"asked", method + " " + target}}};
  }
  UniqueFd connect() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  /// All that comes until the server closes; it may close before it is asked.
  static std::string said(const UniqueFd& socket, const std::string& question) {
    static_cast<void>(::send(socket.get(), question.data(), question.size(), MSG_NOSIGNAL));
    std::string text(16'384, '\0');
    std::size_t size = 0;
    for (ssize_t more = 1; more > 0; size += more > 0 ? static_cast<std::size_t>(more) : 0)
      more = ::recv(socket.get(), text.data() + size, text.size() - size, 0);
    text.resize(size);
    return text;
  }

  sockaddr_un address{};
  test::TemporaryFolder folder;
  boost::asio::io_context loop;
  HistoryServer server;
  std::thread thread;
};

TEST_F(HistoryServerTest, AsksTheKernelWhoCalls) {
  const std::string text = said(connect(), kQuestion);
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200")) << text;
  const Json body = Json::parse(text.substr(text.find("\r\n\r\n")), nullptr, false);
  EXPECT_EQ(body, (Json{{"uid", ::getuid()}, {"has_group", true}, {"asked", "GET /a?b"}}));
}

TEST_F(HistoryServerTest, ClosesWhatIsNoRequestOrTooMuch) {
  for (const std::string& bad : {std::string("\r\n\r\nnonsense\r\n\r\n"), "GET /" + std::string(9000, 'x'),
                                 std::string("GET / HTTP/1.1\r\nContent-Length: 99\r\n\r\n")})
    EXPECT_EQ(said(connect(), bad), "") << bad.substr(0, 20);
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < HistoryServer::kMostOfUser; ++i) silent.push_back(connect());
  EXPECT_EQ(said(connect(), kQuestion), "") << "one user has only so many connections";
  EXPECT_NE(said(silent.back(), kQuestion), "") << "those that it has are served";
}

}  // namespace
}  // namespace gpumem::history
