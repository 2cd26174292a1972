#pragma once
#include <sys/types.h>

#include <cstddef>
#include <span>

namespace gpumem::host {

// Descriptors that a client sends are queued in the broker's socket. Closing the last copy of one, or the
// socket with them in its queue, can block as long as the client likes (a TCP socket with SO_LINGER). So the
// broker never receives them, and a SocketDisposal closes each socket that may have some in its queue.

/// Has the kernel refuse descriptors on the connections that `listener`, not yet listening, will take in:
/// the sender gets EPERM. False: the kernel does not know how (Linux 6.15 and older).
bool refuse_descriptors(int listener);

/// The data that can be read from a socket next: a message, or the part of a stream up to the first
/// descriptors.
struct Readable {
  ssize_t bytes = 0;         ///< copied; less than zero: errno says why
  bool descriptors = false;  ///< descriptors come with the data
};
/// Copies it to `into`, without receiving it. Does not block.
Readable look_at(int socket, std::span<std::byte> into);

/// Shuts `socket` down and empties its queue up to the first descriptors; whether there were none. Does not
/// block.
bool empty_queue(int socket);

}  // namespace gpumem::host
