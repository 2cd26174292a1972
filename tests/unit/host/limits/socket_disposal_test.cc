// Sockets whose queue holds descriptors that wait when they are closed.
#include "daemon/host/limits/socket_disposal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "base/packet.h"
#include "tests/hostile/clients/lingering_socket.h"
#include "tests/support/eventually.h"

namespace gpumem::host {
namespace {

struct Pair {
  explicit Pair(int type = SOCK_SEQPACKET) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    broker.reset(ends[0]);
    client.reset(ends[1]);
  }
  bool is_cut() const {
    pollfd waiting{client.get(), POLLIN, 0};
    return ::poll(&waiting, 1, 0) > 0 && (waiting.revents & POLLHUP) != 0;
  }
  UniqueFd broker, client;
};

/// Tells when its last descriptor has been closed.
struct Closed {
  Closed() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
  bool is_closed() const {
    pollfd waiting{read_end.get(), POLLIN, 0};
    return ::poll(&waiting, 1, 0) > 0;
  }
  UniqueFd read_end, write_end;
};

TEST(ForeignDescriptors, AreSeenWithoutBeingReceived) {
  const Pair pair;
  std::array<std::byte, 8> bytes{};
  EXPECT_LT(look_at(pair.broker.get(), bytes).bytes, 0) << "nothing there";
  EXPECT_TRUE(send_packet(pair.client.get(), "one"));
  EXPECT_TRUE(send_packet(pair.client.get(), "two", std::array{STDIN_FILENO}));
  EXPECT_EQ(look_at(pair.broker.get(), bytes).bytes, 3);
  EXPECT_FALSE(look_at(pair.broker.get(), bytes).descriptors);
  std::array<char, 8> buffer{};
  EXPECT_EQ(receive_bytes(pair.broker.get(), buffer).value(), "one");
  EXPECT_TRUE(look_at(pair.broker.get(), bytes).descriptors);
  EXPECT_TRUE(look_at(pair.broker.get(), bytes).descriptors) << "still there";
}

TEST(ForeignDescriptors, BehindOtherMessagesAreFoundWhenTheQueueIsEmptied) {
  for (const char* const before : {"message", ""}) {
    const Pair pair;
    EXPECT_GE(::send(pair.client.get(), before, std::strlen(before), 0), 0);
    EXPECT_TRUE(send_packet(pair.client.get(), "x", std::array{STDIN_FILENO}));
    EXPECT_FALSE(empty_queue(pair.broker.get())) << '"' << before << '"';
  }
  const Pair stream(SOCK_STREAM);
  EXPECT_TRUE(send_packet(stream.client.get(), std::string(40'000, 'x')));
  EXPECT_TRUE(send_packet(stream.client.get(), "x", std::array{STDIN_FILENO}));
  EXPECT_FALSE(empty_queue(stream.broker.get()));
}

TEST(ForeignDescriptors, AreNotFoundWhereThereAreNone) {
  const Pair messages, stream(SOCK_STREAM), nothing;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(send_packet(messages.client.get(), "message"));
  EXPECT_EQ(::send(messages.client.get(), "", 0, 0), 0);
  EXPECT_TRUE(send_packet(stream.client.get(), std::string(40'000, 'x')));
  EXPECT_TRUE(empty_queue(messages.broker.get()));
  EXPECT_TRUE(empty_queue(stream.broker.get()));
  EXPECT_TRUE(empty_queue(nothing.broker.get()));
  EXPECT_FALSE(send_packet(messages.client.get(), "more", std::array{STDIN_FILENO})) << "it is shut down";
}

TEST(SocketDisposal, ClosesSocketsWithDescriptorsInTheirQueue) {
  SocketDisposal disposal(true);
  Pair pair;
  Closed closed;
  EXPECT_TRUE(send_packet(pair.client.get(), "x", std::array{closed.write_end.get()}));
  closed.write_end.reset();
  disposal.close(std::move(pair.broker));
  EXPECT_TRUE(pair.is_cut()) << "at once";
  EXPECT_TRUE(test::eventually([&] { return closed.is_closed(); }));
}

TEST(SocketDisposal, IsNotHeldUpByMoreLingeringSocketsThanItHasThreads) {
  const test::LingeringSockets lingering;
  SocketDisposal disposal(true);
  for (std::size_t i = 0; i < 3 * SocketDisposal::kThreads; ++i) {
    Pair pair;
    EXPECT_TRUE(lingering.send_one(pair.client.get()));
    EXPECT_TRUE(lingering.send_one(pair.client.get()));
    disposal.close(std::move(pair.broker));
  }
  Pair last;
  Closed closed;
  EXPECT_TRUE(send_packet(last.client.get(), "x", std::array{closed.write_end.get()}));
  closed.write_end.reset();
  disposal.close(std::move(last.broker));
  EXPECT_TRUE(test::eventually([&] { return closed.is_closed(); }));
  EXPECT_TRUE(disposal.has_room());
}

}  // namespace
}  // namespace gpumem::host
