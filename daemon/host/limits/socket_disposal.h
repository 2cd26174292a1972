#pragma once
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>

#include "base/system/unique_fd.h"

namespace gpumem::host {

// Descriptors that a client sends are queued in the broker's socket. Closing the last copy of one, or the
// socket with them in its queue, can block as long as the client likes (a TCP socket with SO_LINGER). So the
// broker never receives them, and a SocketDisposal closes each socket that may have some in its queue.

/// Has the kernel refuse descriptors on the connections that `listener`, not yet listening, will take in:
/// the sender gets EPERM. False: the kernel does not know how (Linux 6.15 and older).
bool refuse_descriptors(int listener);

/// The next data of a socket: a message, or the part of a stream up to the first descriptors.
struct Readable {
  ssize_t bytes = 0;         ///< copied; less than zero: errno says why
  bool descriptors = false;  ///< descriptors come with the data
};
/// Copies it to `into`, without receiving it. Does not block.
Readable look_at(int socket, std::span<std::byte> into);

/// Shuts `socket` down, empties its queue up to the first descriptors; whether there were none. Never blocks.
bool empty_queue(int socket);

/// Closes sockets of clients without making the caller wait. A socket with descriptors in its queue is closed
/// on one of a few threads. A timer's signal interrupts a close that blocks there (a TCP socket that
/// lingers). A thread that even the signal does not interrupt is lost; the others go on.
/// Threads  any.
class SocketDisposal {
 public:
  static constexpr std::size_t kThreads = 4;
  static constexpr std::size_t kMostQueued = 256;  ///< sockets kept open until a thread is free

  /// `foreign_descriptors`  whether clients' sockets can have any; otherwise they are simply closed.
  explicit SocketDisposal(bool foreign_descriptors);
  /// Queued sockets stay open until the process ends: the kernel does not wait then.
  ~SocketDisposal();
  SocketDisposal(const SocketDisposal&) = delete;
  SocketDisposal& operator=(const SocketDisposal&) = delete;

  bool foreign_descriptors() const { return foreign_descriptors_; }
  /// Cuts the connection at once, and closes the socket now or soon. Does not block.
  void close(UniqueFd socket);
  /// As close(), for a listening socket, with the connections that nobody has accepted.
  void close_listener(UniqueFd socket);
  /// False: no more connections are to be accepted until it is true again.
  bool has_room() const;

 private:
  struct State;
  void enqueue(UniqueFd socket);

  const bool foreign_descriptors_;
  std::shared_ptr<State> state_;  // the threads', too
};

}  // namespace gpumem::host
