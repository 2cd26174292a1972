#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <memory>

#include "client/lane/lane.h"
#include "tests/unit/client/lane/fake_lane.h"

namespace gpumem::client::test {

/// Of calls that are answered.
inline constexpr std::chrono::milliseconds kTimeout{20'000};

/// A lane to `fake`, which greets.
inline std::unique_ptr<Lane> connected(const FakeLane& fake, std::chrono::milliseconds timeout = kTimeout) {
  auto lane = Lane::connect(fake.socket(), timeout);
  EXPECT_TRUE(lane) << to_string(lane.error());
  const auto greeting = (*lane)->greet("test");
  EXPECT_TRUE(greeting) << to_string(greeting.error());
  return std::move(*lane);
}

/// Receives a request and answers it with Done, if the client is still there.
inline Said answered(int socket) {
  Said said = receive_frame(socket);
  (void)send_packet(socket, lane::Outgoing(lane::Done{}, said.header.request).bytes());
  return said;
}
inline void answer_all(int socket) {
  while (answered(socket).header.kind != lane::Kind{}) {
  }
}

inline bool is_readable(int socket) {
  pollfd polled{socket, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

/// A part of `grant` with `leases` of slice 1, of which `missing` more are to come.
inline lane::Granted part_of(std::uint64_t grant, const std::vector<std::uint64_t>& leases,
                             std::uint64_t missing = 0) {
  lane::Granted part{};
  part.grant = grant;
  part.missing = missing;
  for (const std::uint64_t lease : leases) part.leases[part.count++] = {lease, 4096, 1};
  return part;
}

/// A request for 1 MiB of slice 1.
inline lane::Grow growth() {
  lane::Grow body{};
  body.count = 1;
  body.parts[0] = {1, 1 << 20, 0, 0};
  return body;
}

/// A pipe's writing end, for a lease's descriptor, and whether all copies of it are closed.
class Pinned {
 public:
  Pinned() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_.reset(ends[0]);
    writer_.reset(ends[1]);
  }
  int descriptor() const { return writer_.get(); }
  /// Blocks until nobody has a copy.
  bool is_let_go() {
    writer_.reset();
    char byte = 0;
    return ::read(reader_.get(), &byte, 1) == 0;
  }

 private:
  UniqueFd reader_;
  UniqueFd writer_;
};

}  // namespace gpumem::client::test
