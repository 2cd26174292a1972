// Each user's share of unread descriptors, and the order of waiting senders.
#include "daemon/host/limits/unread_descriptors.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <utility>

#include "base/packet.h"
#include "tests/support/eventually.h"

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
  struct Sender final : DescriptorSender {
    void try_again() override { ++tries; }
    void cut(const std::string& why) override { words = why; }
    int tries = 0;
    std::string words;
  };
  void send(const Ends& ends, std::uint32_t uid, std::size_t count) {
    EXPECT_TRUE(send_packet(ends.own.get(), "x"));
    unread.sent(uid, ends.own.get(), count, sender);
  }
  static void read(const Ends& ends) {
    std::array<char, 1> buffer{};
    EXPECT_TRUE(receive_bytes(ends.client.get(), buffer));
  }
  // As of no socket that was sent any.
  bool has_room(std::uint32_t uid, std::size_t count) { return unread.has_room(uid, -1, count); }
  // The class looks now and then, not at every question.
  bool has_room_soon(std::uint32_t uid, std::size_t count) {
    return test::eventually([&] { return has_room(uid, count); });
  }
  template <class Condition>
  bool until(Condition condition) {
    return test::eventually([&] {
      loop.restart();
      loop.run_one_for(std::chrono::milliseconds(20));
      return condition();
    });
  }

  SocketDisposal disposal{true};
  boost::asio::io_context loop;
  UnreadDescriptors unread{loop, 10, disposal};
  std::shared_ptr<Sender> sender = std::make_shared<Sender>();
};

TEST_F(UnreadDescriptorsTest, AreCountedForEachUser) {
  const Ends one;
  send(one, 1, 8);
  EXPECT_TRUE(has_room(1, 2));
  EXPECT_FALSE(has_room(1, 3));
  EXPECT_TRUE(has_room(2, 3));
}

TEST_F(UnreadDescriptorsTest, CountNoMoreWhenTheirSocketHasBeenRead) {
  const Ends one;
  const Ends other;
  send(one, 1, 5);
  send(other, 1, 5);
  EXPECT_FALSE(has_room(1, 5));
  read(other);
  EXPECT_TRUE(has_room_soon(1, 5));
  EXPECT_FALSE(has_room(1, 6)) << "the first is unread";
}

TEST_F(UnreadDescriptorsTest, OfASocketThatIsReadAreKnownAtOnce) {
  const Ends one;
  send(one, 1, 10);
  EXPECT_FALSE(unread.has_room(1, one.own.get(), 10));
  read(one);
  EXPECT_TRUE(unread.has_room(1, one.own.get(), 10));
}

TEST_F(UnreadDescriptorsTest, MayBeMoreInOneMessageWhenNothingIsUnread) {
  const Ends one;
  EXPECT_TRUE(has_room(1, 128));
  send(one, 1, 128);
  EXPECT_FALSE(has_room(1, 1));
  read(one);
  EXPECT_TRUE(has_room_soon(1, 128));
}

TEST_F(UnreadDescriptorsTest, CountOnWhenTheirConnectionHasEndedUntilTheyAreRead) {
  Ends one;
  send(one, 1, 8);
  unread.close(1, std::move(one.own), 3);
  EXPECT_FALSE(has_room(1, 1));
  EXPECT_TRUE(unread.is_full_of_closed(1));
  EXPECT_FALSE(unread.is_full_of_closed(2));
  read(one);
  EXPECT_TRUE(until([&] { return has_room(1, 10); }));
  EXPECT_FALSE(unread.is_full_of_closed(1));
}

TEST_F(UnreadDescriptorsTest, OfEndedConnectionsLeaveThoseThatThereAreTheirShare) {
  Ends one;
  send(one, 1, 7);
  unread.close(1, std::move(one.own), 3);
  EXPECT_TRUE(has_room(1, 10));
  EXPECT_FALSE(unread.is_full_of_closed(1));
}

TEST_F(UnreadDescriptorsTest, CountNoMoreWhenTheirReceiverIsGone) {
  Ends one;
  send(one, 1, 8);
  unread.close(1, std::move(one.own), 3);
  one.client.reset();
  EXPECT_TRUE(until([&] { return has_room(1, 10); }));
}

TEST_F(UnreadDescriptorsTest, OfAConnectionThatWasReadAreNotCountedWhenItEnds) {
  Ends one;
  send(one, 1, 10);
  read(one);
  unread.close(1, std::move(one.own), 3);
  EXPECT_TRUE(has_room(1, 10));
}

TEST_F(UnreadDescriptorsTest, WakeWaitingSendersWhenTheyAreRead) {
  const Ends one;
  send(one, 1, 10);
  const auto waiting = std::make_shared<Sender>();
  unread.await_room(1, waiting);
  read(one);
  EXPECT_TRUE(until([&] { return waiting->tries == 1; }));
  EXPECT_EQ(sender->words, "") << "it has read";
}

TEST_F(UnreadDescriptorsTest, CostASilentReaderItsConnectionWhenAnotherWaits) {
  UnreadDescriptors impatient(loop, 10, disposal, std::chrono::milliseconds(50));
  const Ends one;
  EXPECT_TRUE(send_packet(one.own.get(), "x"));
  impatient.sent(1, one.own.get(), 10, sender);
  const auto waiting = std::make_shared<Sender>();
  impatient.await_room(1, waiting);
  EXPECT_TRUE(until([&] {
    if (waiting->tries == 0) return false;
    waiting->tries = 0;
    impatient.await_room(1, waiting);
    return !sender->words.empty();
  }));
  EXPECT_EQ(sender->words, "it does not read its lane");
  EXPECT_EQ(waiting->words, "");
}

}  // namespace
}  // namespace gpumem::host
