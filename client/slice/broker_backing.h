#pragma once

#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "client/allocator/backing.h"
#include "client/allocator/engine.h"
#include "client/session/connection.h"
#include "client/slice/borrower.h"
#include "cuda/memory.h"
#include "gpumem/options.h"

namespace gpumem::client {

/// An allocator's backing by the broker and the driver: a slice whose extents are mapped wherever the
/// allocator wants them, in a reservation that is much larger than the slice's limit. An extent's id is its
/// lease's id.
/// Invariant  `extents_` holds all leases of the slice. `mapped_` has the start address of each mapped one,
///            and no address twice.
/// Threads    as Backing. `mutex_` guards both and is held for driver calls, never for the broker.
class BrokerBacking final : public allocator::Backing, public Borrower {
 public:
  /// Errors  as Session::open_slice.
  static Result<std::unique_ptr<BrokerBacking>> open(std::shared_ptr<Connection> connection,
                                                     const BorrowerOptions& options);
  /// Unmaps and gives back everything, and closes the slice. Not run in a forked child.
  ~BrokerBacking() override;

  /// Whether waits are told on standard error (notice_of_wait). Before the first growth.
  void tell_waits(bool tells) { tells_waits_ = tells; }

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
    cuda::Allocation memory;
    int mappings = 0;
  };
  /// Of extents that are let go of: the handles go first, then the broker is told.
  struct LetGo {
    std::vector<cuda::Allocation> memory;
    Leases leases;
    Bytes bytes;
  };

  BrokerBacking(std::shared_ptr<Connection> connection, Opened opened, cuda::Reservation reservation,
                std::shared_ptr<SharedLimit> shared_limit);
  Result<std::vector<allocator::Extent>, GrowError> grow(const Request& request);
  Result<std::vector<allocator::Extent>, GrowError> grow_here(const Request& request);
  const cuda::Driver& driver() const { return *Borrower::device().driver; }
  Result<void> map_locked(allocator::Address at, std::span<const allocator::Extent> extents)
      GPUMEM_REQUIRES(mutex_);
  /// Lets the peers use what was mapped from `at` on; or unmaps it.
  Result<void> allow_peers(allocator::Address at, std::span<const cuda::Allocation* const> memory)
      GPUMEM_REQUIRES(mutex_);
  Result<void> unmap_locked(allocator::Address at, Bytes bytes) GPUMEM_REQUIRES(mutex_);
  Result<ExportedRange> range_of(allocator::Address at, Bytes bytes);
  /// False: the driver keeps some of it mapped.
  bool unmap_all() GPUMEM_REQUIRES(mutex_);
  /// What is held of `leases` and is not mapped.
  LetGo let_go(const Leases& leases) GPUMEM_REQUIRES(mutex_);

  const cuda::Reservation reservation_;
  const Properties properties_;
  const std::shared_ptr<SharedLimit> shared_limit_;  ///< held memory is charged here; or null
  bool tells_waits_ = false;
  Mutex mutex_;
  std::unordered_map<LeaseId, Held> extents_ GPUMEM_GUARDED_BY(mutex_);
  std::map<allocator::Address, LeaseId> mapped_ GPUMEM_GUARDED_BY(mutex_);
  std::vector<int> peers_ GPUMEM_GUARDED_BY(mutex_);                  ///< that may use what is mapped
  std::vector<allocator::Extent> arrived_ GPUMEM_GUARDED_BY(mutex_);  ///< of the growth under way
};

/// Opens the implementation of an Allocator: an engine over memory of the broker. It keeps `connection`
/// alive, and answers the broker's requests for memory. In a forked child its end does nothing.
/// `shared_limit`  that the engine's memory is taken of; null: the limit alone counts.
/// `deadline`  of what the broker is asked; none: the connection's timeout.
/// `announces_ends`  the caller releases each stream before it is destroyed (StreamPort::announces_ends).
/// Errors  as Session::open_allocator.
Result<std::shared_ptr<allocator::Engine>> open_engine(std::shared_ptr<Connection> connection,
                                                       const AllocatorOptions& options,
                                                       std::shared_ptr<SharedLimit> shared_limit = {},
                                                       std::optional<Lane::Clock::time_point> deadline = {},
                                                       bool announces_ends = false);

}  // namespace gpumem::client
