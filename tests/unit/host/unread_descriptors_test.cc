// What each user may leave unread.
#include "daemon/host/unread_descriptors.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string_view>

#include "base/packet.h"
#include "base/unique_fd.h"

namespace gpumem::host {
namespace {

struct Ends {
  Ends() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    own.reset(ends[0]);
    client.reset(ends[1]);
  }
  UniqueFd own, client;
};

struct UnreadDescriptorsTest : testing::Test {
  void send(const Ends& ends, std::uint32_t uid, std::size_t count) {
    EXPECT_TRUE(send_packet(ends.own.get(), "x"));
    unread.sent(uid, ends.own.get(), count);
  }
  static void read(const Ends& ends) { EXPECT_TRUE(receive_bytes(ends.client.get(), 1)); }

  UnreadDescriptors unread{10};
};

TEST_F(UnreadDescriptorsTest, AreCountedForEachUser) {
  const Ends one;
  send(one, 1, 8);
  EXPECT_TRUE(unread.has_room(1, 2));
  EXPECT_FALSE(unread.has_room(1, 3));
  EXPECT_TRUE(unread.has_room(2, 3));
}

TEST_F(UnreadDescriptorsTest, CountNoMoreWhenTheirSocketHasBeenRead) {
  const Ends one;
  const Ends other;
  send(one, 1, 5);
  send(other, 1, 5);
  EXPECT_FALSE(unread.has_room(1, 5));
  read(other);
  EXPECT_TRUE(unread.has_room(1, 5));
  EXPECT_FALSE(unread.has_room(1, 6)) << "the first is unread";
}

TEST_F(UnreadDescriptorsTest, CountNoMoreWhenTheirSocketIsGone) {
  const Ends one;
  send(one, 1, 10);
  unread.forget(1, one.own.get());
  unread.forget(1, one.own.get());
  EXPECT_TRUE(unread.has_room(1, 10));
}

TEST_F(UnreadDescriptorsTest, MayBeMoreInOneMessageWhenNothingIsUnread) {
  const Ends one;
  EXPECT_TRUE(unread.has_room(1, 128));
  send(one, 1, 128);
  EXPECT_FALSE(unread.has_room(1, 1));
  read(one);
  EXPECT_TRUE(unread.has_room(1, 128));
}

}  // namespace
}  // namespace gpumem::host
