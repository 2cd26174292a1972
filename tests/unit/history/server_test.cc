#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "base/system/unix_socket.h"
#include "daemon/history/history_server.h"
#include "tests/support/http_client.h"
#include "tests/unit/history/samples.h"

namespace gpumem::history {
namespace {

constexpr const char* kQuestion = "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n";

TEST(UserTurnsTest, TakeOnePieceOfEachUserAfterTheOther) {
  UserTurns turns;
  std::string done;
  const auto add = [&](std::uint32_t user, char piece) {
    turns.add(user, [&done, piece] { done += piece; });
  };
  std::stop_source stop;
  const auto take = [&] { turns.next(stop.get_token())(); };
  for (const char piece : {'a', 'b', 'c'}) add(1, piece);
  take();
  for (const char piece : {'x', 'y'}) add(2, piece);
  for (int i = 0; i < 2; ++i) take();
  add(3, '!');
  for (int i = 0; i < 3; ++i) take();
  EXPECT_EQ(done, "abxcy!");
  stop.request_stop();
  EXPECT_EQ(turns.next(stop.get_token()), nullptr);
}

/// A server of a socket of its own, whose answers tell who asked for what.
struct HistoryServerTest : testing::Test {
  HistoryServerTest() { server.start(); }
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

  std::atomic<int> connections = 0;
  int connections_of_one = 1000;  ///< so many in a row are of one account
  test::TemporaryFolder folder;
  HistoryServer server{
      listening(),
      [this](std::uint32_t) { return 1000 + static_cast<std::uint32_t>(connections++ / connections_of_one); },
      answer};
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

TEST_F(HistoryServerTest, CountsTheUsersOfOnePersonAsThatPerson) {
  connections_of_one = kMostOfUser + 1;
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < kMostOfUser; ++i) silent.push_back(connect());
  EXPECT_EQ(said(connect(), kQuestion), "") << "the users are one account";
  EXPECT_NE(said(connect(), kQuestion), "") << "another account has places of its own";
}

}  // namespace
}  // namespace gpumem::history
