#pragma once
#include <cuda.h>

#include <memory>
#include <optional>

#include "base/mutex.h"
#include "base/system/unique_fd.h"
#include "client/process/fork_guard.h"
#include "client/shim/memory/blocks/device_memory.h"

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

/// The handles of cuMemCreate whose memory is borrowed, and where they are mapped. A handle that the program
/// has is the driver's own of the first of its extents, one or more that the broker lent for it. They are
/// given back when the handle is released and mapped nowhere. Calls for handles and addresses that are not of
/// such memory answer nothing: they are the driver's. Threads  any.
class Handles {
 public:
  using Handle = CUmemGenericAllocationHandle;
  Handles();
  ~Handles();
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  /// Borrows `size` for a handle of `asked`.   Errors  as cuMemCreate.   Blocks.
  CUresult create(DeviceMemory& memory, Bytes size, const CUmemAllocationProp& asked, Handle* out);
  /// Errors  INVALID_VALUE: released already.
  std::optional<CUresult> release(Handle handle);
  /// Maps the extents one after the other. All or nothing.
  std::optional<CUresult> map(CUdeviceptr at, Bytes size, Bytes offset, Handle handle,
                              unsigned long long flags);
  /// The driver's unmapping, with what that ends.
  /// Errors  INVALID_VALUE: the range begins or ends inside of a mapping.
  CUresult unmap(CUdeviceptr at, Bytes size);
  /// The handle that is mapped at `address`, to be released once more.
  std::optional<CUresult> retain(CUdeviceptr address, Handle* out);
  /// A mapping, as the program made it.
  struct Mapped {
    CUdeviceptr at = 0;
    Bytes bytes;
    CUmemAllocationHandleType types{};  ///< asked for
  };
  std::optional<Mapped> find(CUdeviceptr address) const;
  /// What was asked for.
  std::optional<CUresult> properties(Handle handle, CUmemAllocationProp* out) const;
  /// Asks the broker for the descriptor: the driver exports for the creator alone, which is the broker.
  /// Errors  INVALID_VALUE: not asked for at creation; NOT_SUPPORTED: it is more than one extent;
  ///         OPERATING_SYSTEM: there is no room for a descriptor, or no broker.   Blocks.
  std::optional<CUresult> export_to(void* out, Handle handle, CUmemAllocationHandleType type,
                                    unsigned long long flags);
  /// The handle that was exported as `fd`, to be released once more. Of the first kMostKept that are exported
  /// at a time.
  std::optional<CUresult> import(int fd, Handle* out);
  static constexpr std::size_t kMostKept = 256;  ///< descriptors

 private:
  struct Created;
  struct State;
  mutable Mutex mutex_;  ///< held for driver calls, never for the broker
  const std::unique_ptr<State> state_;
  mutable client::RefusalMessages messages_;
};

}  // namespace gpumem::shim
