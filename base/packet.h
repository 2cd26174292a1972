#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem {

/// One message of a Unix SOCK_SEQPACKET socket, with the descriptors that came along.
struct Packet {
  std::string bytes;
  std::vector<UniqueFd> descriptors;
};

/// Sends `bytes` and `descriptors` as one message. The descriptors stay the caller's.
/// Errors  kDeadlineExceeded (no room: the socket is non-blocking or its timeout has passed),
///         kUnavailable (the peer is gone), kInvalidArgument (too long), kResourceExhausted (too many
///         descriptors in flight).
Result<void> send_packet(int socket, std::string_view bytes, std::span<const int> descriptors = {});

/// Receives one message of at most `most_bytes` and `most_descriptors`; received descriptors are
/// close-on-exec. An empty message means that the peer has closed.
/// Errors  kDeadlineExceeded (nothing there: as above), kUnavailable (connection lost),
///         kInvalidArgument (longer, or more descriptors, than allowed; nothing is kept of it).
Result<Packet> receive_packet(int socket, std::size_t most_bytes, std::size_t most_descriptors);

/// Receives the bytes of one message that brings no descriptors into `buffer`, and gives their part of it. An
/// empty message means that the peer has closed. On a socket that can bring descriptors the caller looks
/// first: the kernel closes those of a message that is received without room for them, here and now.
/// Errors  as receive_packet, with the buffer's size for the most bytes.
Result<std::string_view> receive_bytes(int socket, std::span<char> buffer);

}  // namespace gpumem
