#pragma once
#include "base/unique_fd.h"
#include "client/fork_guard.h"

namespace gpumem::shim {

/// Whether two descriptors are duplicates of each other, also by way of another process. Both files of a
/// driver may have one inode, so that does not tell.
bool is_same_open_file(int one, int other);
/// Finds out by a change of the status flags, which is undone: for kernels without F_DUPFD_QUERY.
bool share_status_flags(int one, int other);

/// The open file that a handle is exported as: a descriptor of it is kept, so that another one is known when
/// it comes back. Not in a forked child. Not thread-safe.
class ExportedFile {
 public:
  void keep(client::OwnFd own) { own_ = std::move(own); }
  void forget() { own_ = {}; }
  bool is_kept() const { return own_.is_intact(); }
  /// One more descriptor, for the program.   Invalid: errno says why.
  UniqueFd another() const { return duplicate_of(own_.get()); }
  bool is_of(int fd) const;

 private:
  client::OwnFd own_;
};

}  // namespace gpumem::shim
