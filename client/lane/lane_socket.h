#pragma once
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "client/process/fork_guard.h"
#include "proto/lane/frames.h"

namespace gpumem::client {

/// Connects to the lane's socket at `path`. The socket does not block.
/// Errors  as connect_error.   Blocks  for `timeout` at most.
Result<OwnFd> connect_lane(const std::filesystem::path& path, std::chrono::milliseconds timeout);

/// A packet as it came.
struct LanePacket {
  std::array<char, lane::kMostBytes> bytes;  ///< the first `size` are set
  std::size_t size = 0;                      ///< 0: it was too long to be a frame
  std::vector<OwnFd> descriptors;
  bool lost_descriptors = false;  ///< there was no room for all of them

  LanePacket() {}  // leaves `bytes` alone
  LanePacket(const LanePacket&) = delete;
  LanePacket& operator=(const LanePacket&) = delete;

  std::string_view view() const { return {bytes.data(), size}; }
  /// Becomes what `other` was.
  void take(LanePacket& other) {
    std::memcpy(bytes.data(), other.bytes.data(), other.size);
    size = std::exchange(other.size, 0);
    descriptors = std::exchange(other.descriptors, {});
    lost_descriptors = std::exchange(other.lost_descriptors, false);
  }
};

/// The client's end of a lane: whole packets, in and out.
/// Threads  any number may send; one receives at a time.
class LaneSocket {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Sent { kYes, kFull, kGone };
  enum class Received { kPacket, kNothing, kEnd };

  explicit LaneSocket(OwnFd socket) : socket_(std::move(socket)) {}

  /// Whether the program has left the descriptor alone. If not, the socket is as good as closed: nothing is
  /// done to whatever has its number now.
  bool is_intact() const { return socket_.is_intact(); }
  /// Does not block. kFull: the broker has not read enough. kGone: it has closed its end.
  Sent send(std::string_view bytes) const;
  /// Does not block.
  Received receive(LanePacket& packet) const;
  /// Becomes the end of `other`'s connection, with the same number. Threads that wait for something of the
  /// connection before are told that it has ended. False: the socket is not intact; nothing has changed.
  bool replace(LaneSocket other) const;
  /// Lets nothing more in. What has come can still be received.
  void stop_receiving() const;
  /// Ends the connection for both sides.
  void hang_up() const;
  /// Whether one of poll()'s `events` came until `deadline`. It may be in the past.
  bool wait(short events, Clock::time_point deadline) const;

 private:
  OwnFd socket_;
};

}  // namespace gpumem::client
