#pragma once
#include <cstddef>
#include <memory>

#include "base/unique_fd.h"

namespace gpumem::host {

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
