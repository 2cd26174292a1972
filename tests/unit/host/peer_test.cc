// The kernel says who is at the other end.
#include "daemon/host/sockets/peer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tests/support/eventually.h"

namespace gpumem::host {
namespace {

bool has_ended(int pidfd, std::chrono::milliseconds patience = {}) {
  pollfd waiting{pidfd, POLLIN, 0};
  return ::poll(&waiting, 1, static_cast<int>(patience.count())) > 0;
}

// A socket whose other end is a child's, made by it so that the kernel notes the child; the child ends when
// `until` is closed.
struct ChildPeer {
  ChildPeer() {
    address.ss_family = AF_UNIX;
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    until.reset(ends[1]);
    const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)), 0);
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_NAME, "na\nme\xff");
      until.reset();
      const UniqueFd own(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
      const bool connected = ::connect(own.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
      char byte;
      const bool ended = ::read(ends[0], &byte, 1) == 0;
      ::_exit(connected && ended ? 0 : 1);
    }
    ::close(ends[0]);
    socket.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  ~ChildPeer() { end(); }
  void end() {
    until.reset();
    if (pid > 0) ::waitpid(std::exchange(pid, -1), nullptr, 0);
  }

  sockaddr_storage address{};  // of the kernel's choice, without a file
  socklen_t length = sizeof address;
  UniqueFd until, socket;
  pid_t pid = -1;
};

TEST(Peer, IsTheProcessThatMadeTheConnection) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const UniqueFd one(ends[0]), two(ends[1]);
  auto found = identify_peer(one.get());
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->peer.pid, ::getpid());
  EXPECT_EQ(found->peer.uid, ::geteuid());
  ASSERT_FALSE(found->peer.gids.empty());
  EXPECT_EQ(found->peer.gids.front(), ::getegid());
  std::vector<gid_t> groups(static_cast<std::size_t>(::getgroups(0, nullptr)));
  ASSERT_GE(::getgroups(static_cast<int>(groups.size()), groups.data()), 0);
  for (const gid_t group : groups) EXPECT_EQ(std::ranges::count(found->peer.gids, group) > 0, true) << group;
  ASSERT_TRUE(found->pidfd.valid());
  EXPECT_FALSE(has_ended(found->pidfd.get())) << "it lives";
}

TEST(Peer, NameIsMadeFitToBePrinted) {
  ChildPeer child;
  auto found = identify_peer(child.socket.get());
  ASSERT_TRUE(found);
  EXPECT_TRUE(
      test::eventually([&] { return identify_peer(child.socket.get())->peer.command.starts_with("na"); }));
  EXPECT_TRUE(std::ranges::all_of(found->peer.command, [](char c) { return c >= ' ' && c < '\x7f'; }))
      << found->peer.command;
}

TEST(Peer, EndIsSeenByItsHandle) {
  ChildPeer child;
  auto found = identify_peer(child.socket.get());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->peer.pid, child.pid);
  EXPECT_FALSE(has_ended(found->pidfd.get()));
  child.until.reset();
  EXPECT_TRUE(has_ended(found->pidfd.get(), test::kPatience)) << "though nobody has waited for it";
}

TEST(Peer, CanBeEndedWhereThereIsAHandleOfIt) {
  ChildPeer child;
  EXPECT_TRUE(identify_peer(child.socket.get())->peer.can_be_ended);
  const auto old = identify_peer(child.socket.get(), {.peer_pidfd = false});
  ASSERT_TRUE(old) << old.error().message;
  EXPECT_TRUE(old->pidfd.valid()) << "opened by its pid";
  EXPECT_TRUE(old->peer.can_be_ended);
}

TEST(Peer, ThatHasEndedIsRefused) {
  ChildPeer child;
  child.end();
  EXPECT_FALSE(identify_peer(child.socket.get()));
}

TEST(Peer, WithoutAPidIsTheSameByItsNumberAlone) {
  core::Peer one;
  one.started = 4711;
  core::Peer other = one;
  EXPECT_TRUE(one.is_same_process(other));
  other.uid = 1;
  EXPECT_TRUE(one.is_same_process(other)) << "whoever it runs as now";
  other.started = 4712;
  EXPECT_FALSE(one.is_same_process(other));
  one.started = other.started = 0;
  EXPECT_FALSE(one.is_same_process(other)) << "nothing is known of either";
  one.started = other.started = 4711;
  other.pid = 7;
  EXPECT_FALSE(one.is_same_process(other)) << "the one's is a number, the other's a time";
}

TEST(Peer, OfAFileIsAnError) {
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(identify_peer(nothing.get()));
  EXPECT_FALSE(identify_peer(-1));
}

}  // namespace
}  // namespace gpumem::host
