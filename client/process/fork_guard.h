#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/system/unique_fd.h"
#include "gpumem/result.h"

// Keeps a session out of forked children. A session belongs to the process that opened it. The driver does
// not survive a fork, and a child's copy of the lane would keep a dead session alive. A child may open a
// session of its own.

namespace gpumem::client {

/// The number of forks between the start of the program and this process. If an object was created at another
/// number, it belongs to a parent process.
std::uint64_t process_generation();

/// Success in the process of `generation`. Errors  kFailedPrecondition: this is a forked child of it.
Result<void> check_not_forked(std::uint64_t generation);

/// While one exists, fork() waits in every thread. Hold it for a few system calls only.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

/// Owns a descriptor of this process alone: fork() closes the child's copy before it returns there. Closes it
/// at the end, if it is intact.
class OwnFd {
 public:
  OwnFd() = default;
  /// Takes ownership of `fd`. A NoFork must exist from the creation of `fd` to this call.
  OwnFd(const NoFork& no_fork, UniqueFd fd);
  OwnFd(OwnFd&&) noexcept = default;
  OwnFd& operator=(OwnFd&&) noexcept = default;

  bool valid() const { return node_ != nullptr; }
  int get() const;
  /// Whether the number still means the file that it was created or replaced with. A program may close
  /// descriptors that are not its own, and get their numbers for files of its own: what is not intact must be
  /// neither read, nor written, nor closed. One fstat(2). Inode numbers tell sockets, pipes and files apart,
  /// but no two eventfds.
  bool is_intact() const;

  struct Node;

 private:
  friend bool replace_descriptor(const OwnFd& own, OwnFd other);
  struct Unlink {
    void operator()(Node* node) const;
  };
  std::unique_ptr<Node, Unlink> node_;
};

/// Makes the descriptor with `own`'s number refer to the file of `other`, and closes its former file. All
/// threads see the change at the same moment. False: `own` is not intact; its number is left alone.
bool replace_descriptor(const OwnFd& own, OwnFd other);

/// Owns addresses that memory of this process alone is mapped at. A forked child can read and write nothing
/// there: fork() sets them aside in the child before it returns there, so that nothing else lands on them.
class OwnAddresses {
 public:
  OwnAddresses() = default;
  /// Sets `size` bytes of addresses aside. Errors  those of mmap.
  static Result<OwnAddresses> reserve(std::size_t size);

  OwnAddresses(OwnAddresses&&) noexcept = default;
  OwnAddresses& operator=(OwnAddresses&&) noexcept = default;

  char* base() const;
  std::size_t size() const;

  struct Node;

 private:
  struct Unlink {
    void operator()(Node* node) const;
  };
  explicit OwnAddresses(Node* node) : node_(node) {}
  std::unique_ptr<Node, Unlink> node_;
};

/// Maps nothing at [at, at + size), and sets the addresses aside. Returns where; nullptr: errno tells why.
/// `at`  nullptr: anywhere.
char* set_aside(char* at, std::size_t size);

/// Base of objects of which each process has one.
class OfProcess {
 public:
  OfProcess() = default;
  OfProcess(const OfProcess&) = delete;
  OfProcess& operator=(const OfProcess&) = delete;
  bool is_of_this_process() const { return generation_ == process_generation(); }

 private:
  const std::uint64_t generation_ = process_generation();
};

/// This process's T, an OfProcess, made at the first use and never destroyed. A forked child makes its own:
/// its parent's locks may be held by threads that do not exist in the child.
/// `latest`  a static variable for this use alone, null at first.
/// `make`    makes a std::unique_ptr<T>, and is given the parent's T or null. Several threads may call it at
///           once; one of the results is kept.
template <class T, class Make>
T& this_process(std::atomic<T*>& latest, const Make& make) {
  T* known = latest.load(std::memory_order_acquire);
  if (known != nullptr && known->is_of_this_process()) return *known;
  std::unique_ptr<T> made = make(known);
  if (!latest.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return *known;
  return *made.release();
}

}  // namespace gpumem::client
