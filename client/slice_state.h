#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "base/mutex.h"
#include "client/connection.h"
#include "cuda/memory.h"
#include "gpumem/slice.h"

namespace gpumem::client {

/// What is behind a Slice.
/// Invariant  the extents lie one after the other from the base on, in the order of `extents_`, and end at
///            `committed()`; each of `mappings_` covers those of one grant.
/// Threads    any. `growing_` makes growths take turns and may be held for as long as one waits; `mutex_`
///            guards what is mapped and is held for driver calls and the answer to a grant only.
///            Order: growing_, returning_, mutex_.
class SliceState {
 public:
  /// Errors  as Session::open_slice.
  static Result<std::unique_ptr<SliceState>> open(std::shared_ptr<Connection> connection,
                                                  const SliceOptions& options);
  /// Gives everything back. Not run in a forked child.
  ~SliceState();

  Result<void> usable() const { return connection_->usable(); }
  Result<Bytes, GrowError> grow(Bytes target, std::chrono::milliseconds wait);
  Result<Bytes> shrink(Bytes target);
  void set_in_use(Bytes in_use) { figures_.set_in_use(in_use.count); }

  std::uint64_t base() const { return reservation_.base(); }
  Bytes committed() const { return {figures_.committed()}; }
  Bytes limit() const { return limit_; }
  Bytes granularity() const { return granularity_; }
  const SharedDevice& device() const { return device_; }

 private:
  struct Extent {
    std::uint64_t lease;
    Bytes size;
  };
  using Leases = std::vector<std::uint64_t>;

  SliceState(std::shared_ptr<Connection> connection, SharedDevice device, const v1::OpenSliceResponse& opened,
             cuda::Reservation reservation);
  Bytes committed_and_told();
  Result<void, GrowError> grow_by(Bytes bytes, std::chrono::milliseconds wait);
  Result<void> take(const v1::GrowResponse& granted, Bytes asked);
  struct Unmapped {
    Leases leases;     ///< to be given back
    Result<void> all;  ///< why it is less than asked for
  };
  Unmapped unmap_down_to(Bytes target);
  /// Unmaps from the end down to `end`. What the driver refuses stays mapped, with all below it.
  Result<void> unmap_from(cuda::Address end) GPUMEM_REQUIRES(mutex_);
  Result<void> give_back(Leases leases);
  Result<void> return_batch(const Leases& leases);

  const std::shared_ptr<Connection> connection_;
  const SharedDevice device_;
  const std::uint64_t id_;
  const Bytes limit_;
  const Bytes granularity_;
  const cuda::Reservation reservation_;
  SliceFigures figures_;
  std::timed_mutex growing_;
  std::shared_mutex returning_;  ///< shared: from unmapping until the broker has been told
  Mutex mutex_;
  std::vector<cuda::Mapping> mappings_ GPUMEM_GUARDED_BY(mutex_);
  std::vector<Extent> extents_ GPUMEM_GUARDED_BY(mutex_);
  std::vector<Leases> owed_ GPUMEM_GUARDED_BY(mutex_);  ///< unmapped, but the broker could not be told yet
};

}  // namespace gpumem::client
