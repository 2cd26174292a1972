#pragma once
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "client/allocator/backing.h"
#include "client/process/fork_guard.h"
#include "client/session/host_pages.h"
#include "client/slice/borrower.h"

namespace gpumem::client {

/// An allocator's backing by the host store: extents are files of memory, which are mapped wherever the
/// allocator wants them, faulted in, and pinned unless the options say otherwise. A forked child does not
/// inherit the mappings.
/// Invariant  `extents_` holds all leases of the slice. `mapped_` has the start address of each mapped one.
/// Threads    as Backing. `mutex_` guards both and is held for calls of the driver and the kernel.
class HostBacking final : public allocator::Backing, public Borrower {
 public:
  /// Errors  as Session::open_allocator; kNotFound: the broker has no host store.
  static Result<std::unique_ptr<HostBacking>> open(std::shared_ptr<Connection> connection,
                                                   const BorrowerOptions& options, bool is_pageable);
  /// Unmaps and gives back everything, and closes the slice. Not run in a forked child.
  ~HostBacking() override;

  // Backing.
  const Properties& properties() const override { return properties_; }
  Result<std::vector<allocator::Extent>, GrowError> obtain(const Request& request) override;
  Result<void> map(allocator::Address at, std::span<const allocator::Extent> extents) override;
  Result<void> unmap(allocator::Address at, Bytes bytes) override;
  void give_back(std::vector<allocator::Extent> extents) override;
  Result<void> allow(int ordinal) override;
  Result<HandleBytes> export_range(allocator::Address at, Bytes bytes, const ExportOptions& options) override;
  void publish(Bytes in_use) override { figures().set_in_use(in_use.count); }

  /// Keeps `portion`, not mapped, if `rest` succeeds then.
  Result<void> take(Portion portion, const std::function<Result<void>()>& rest) override;

 private:
  using LeaseId = std::uint64_t;
  struct Held {
    OwnFd file;
    Bytes size;
    int mappings = 0;
  };
  HostBacking(std::shared_ptr<Connection> connection, Opened opened, OwnAddresses addresses,
              const cuda::Driver* driver);
  static Result<OwnAddresses> reserve(Bytes limit);
  static char* pointer(allocator::Address at) { return reinterpret_cast<char*>(at); }
  Result<void> map_one(char* at, const Held& held) GPUMEM_REQUIRES(mutex_);
  void unmap_locked(allocator::Address at, Bytes bytes) GPUMEM_REQUIRES(mutex_);
  /// Lets go of what is held of `leases` and not mapped. Returns the leases.
  Leases let_go(const Leases& leases) GPUMEM_REQUIRES(mutex_);

  const OwnAddresses addresses_;
  const Properties properties_;
  Mutex mutex_;
  HostPins pins_ GPUMEM_GUARDED_BY(mutex_);
  std::unordered_map<LeaseId, Held> extents_ GPUMEM_GUARDED_BY(mutex_);
  std::map<allocator::Address, LeaseId> mapped_ GPUMEM_GUARDED_BY(mutex_);
  std::vector<allocator::Extent> arrived_ GPUMEM_GUARDED_BY(mutex_);  ///< of the growth under way
};

}  // namespace gpumem::client
