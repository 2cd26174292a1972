// Connections are identified in turns over users. The kernel hands them over in the order in which they came.
#include "daemon/host/sockets/peer_listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <vector>

#include "base/system/unix_socket.h"
#include "tests/hostile/clients/as_user.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

constexpr std::uint32_t kFlooder = 10'002, kQuiet = 10'003;

/// Of each type of socket that the broker listens on.
struct PeerListenerTest : testing::TestWithParam<int> {
  PeerListenerTest() {
    if (::geteuid() != 0) return;
    UniqueFd socket(::socket(AF_UNIX, GetParam() | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(bind_unix(socket.get(), path()), 0);
    EXPECT_EQ(::chmod(path().c_str(), 0777), 0);
    EXPECT_EQ(::listen(socket.get(), 4096), 0);
    listener_.emplace(loop_, PeerListener::Options{
                                 .socket = std::move(socket),
                                 .kernel = {},
                                 .budget = DescriptorBudget(4096),
                                 .administrators = &administrators_,
                                 .disposal = &disposal_,
                                 .silent = &silent_,
                                 .queue =
                                     [this](std::function<void()> work) {
                                       boost::asio::post(loop_, [this, work = std::move(work)] {
                                         ++pieces_;
                                         work();
                                       });
                                     },
                                 .accepted = [this](Connection one) { accepted_.push_back(std::move(one)); },
                                 .refused = [](Connection, const Error&) { ADD_FAILURE(); },
                                 .warn = [this](const std::string& words) { warnings_.push_back(words); }});
    listener_->start();
  }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to connect as several users";
  }

  std::filesystem::path path() const { return folder_ / "socket"; }
  UniqueFd connect(std::uint32_t uid) const {
    const test::AsUser user(uid, uid);
    UniqueFd socket(::socket(AF_UNIX, GetParam() | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(connect_unix(socket.get(), path()), 0);
    return socket;
  }
  std::vector<UniqueFd> connect(std::uint32_t uid, int count) const {
    std::vector<UniqueFd> sockets;
    while (count-- > 0) sockets.push_back(connect(uid));
    return sockets;
  }
  /// Does all work that there is; returns the pieces that it took.
  int run() {
    const int before = pieces_;
    loop_.restart();
    while (loop_.poll() != 0) {
    }
    return pieces_ - before;
  }
  /// The users of the connections that were identified, in this order.
  std::vector<std::uint32_t> users() const {
    std::vector<std::uint32_t> uids;
    for (const Connection& one : accepted_) uids.push_back(one.peer.peer.uid);
    return uids;
  }

  test::TemporaryFolder folder_;
  boost::asio::io_context loop_;
  Administrators administrators_;
  SocketDisposal disposal_{false};
  SilentConnections silent_{{.in_all = 400, .of_a_user = 300}};
  std::vector<Connection> accepted_;
  std::vector<std::string> warnings_;
  int pieces_ = 0;
  std::optional<PeerListener> listener_;
};

TEST_P(PeerListenerTest, IdentifiesOneConnectionOfEachUserInTurn) {
  const auto flood = connect(kFlooder, 200);
  const auto quiet = connect(kQuiet, 3);
  run();
  ASSERT_EQ(accepted_.size(), 203U);
  std::vector<std::ptrdiff_t> places;
  const auto uids = users();
  for (auto one = uids.begin(); (one = std::find(one, uids.end(), kQuiet)) != uids.end(); ++one)
    places.push_back(one - uids.begin());
  ASSERT_EQ(places.size(), 3U);
  EXPECT_LT(places[0], 20) << "to accept those before it takes a few pieces of work";
  EXPECT_LE(places[1], places[0] + 2);
  EXPECT_LE(places[2], places[1] + 2);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(silent_.size(), 0U) << "an identified one is its taker's to count";
}

TEST_P(PeerListenerTest, DoesNotIdentifyAConnectionThatHasBeenClosed) {
  for (UniqueFd& one : connect(kFlooder, 300)) {
    EXPECT_EQ(::send(one.get(), "x", 1, MSG_NOSIGNAL), 1);
    one.reset();
  }
  const UniqueFd quiet = connect(kQuiet);
  EXPECT_LT(run(), 25) << "each piece of work disposes of several";
  EXPECT_EQ(users(), (std::vector<std::uint32_t>{kQuiet}));
}

TEST_P(PeerListenerTest, HangsUpOnAUserWithMoreConnectionsThanItsShare) {
  const auto flood = connect(kFlooder, 1000);
  const UniqueFd quiet = connect(kQuiet);
  run();
  const auto uids = users();
  EXPECT_EQ(std::count(uids.begin(), uids.end(), kQuiet), 1);
  EXPECT_GE(uids.size(), 301U);
  EXPECT_LT(uids.size(), 600U);
  EXPECT_EQ(warnings_.size(), 1001 - uids.size());
  EXPECT_NE(warnings_.front().find("uid 10002"), std::string::npos) << warnings_.front();
}

TEST_P(PeerListenerTest, CutsThoseThatItHasNotIdentifiedWhenItStops) {
  const auto flood = connect(kFlooder, 200);
  for (int i = 0; i < 5; ++i) loop_.run_one();
  ASSERT_LT(accepted_.size(), 10U);
  ASSERT_GT(silent_.size(), 10U);
  listener_->stop();
  EXPECT_EQ(silent_.size(), 0U);
  run();
  char byte;
  EXPECT_EQ(::recv(flood[30].get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_LT(accepted_.size(), 10U);
}

INSTANTIATE_TEST_SUITE_P(Sockets, PeerListenerTest, testing::Values(SOCK_SEQPACKET, SOCK_STREAM));

}  // namespace
}  // namespace gpumem::host
