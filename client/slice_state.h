#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "base/mutex.h"
#include "client/connection.h"
#include "client/grant.h"
#include "client/turn.h"
#include "cuda/memory.h"
#include "gpumem/slice.h"

namespace gpumem::client {

/// What is behind a Slice.
/// Invariant  the extents lie one after the other from the base on, in the order of `extents_`, and end at
///            `committed()`; each of `mappings_` covers those of one grant.
/// Threads    any. turn() is the growths' and may be held for as long as one waits; `mutex_` guards what is
///            mapped and is held for driver calls and the answer to a grant only.
///            Order: turn(), `returning_`, `mutex_`; of several slices, the lower id first.
class SliceState final : public Trimmable {
 public:
  /// Errors  as Session::open_slice.
  static Result<std::unique_ptr<SliceState>> open(std::shared_ptr<Connection> connection,
                                                  const SliceOptions& options);
  /// Gives everything back. Not run in a forked child.
  ~SliceState() override;

  Result<void> usable() const { return connection_->usable(); }
  Result<Bytes> shrink(Bytes target);
  Result<Bytes> release(Bytes bytes, Bytes keep);
  /// As Slice::set_in_use.
  bool set_in_use(Bytes in_use);

  // For growths (growth.h).
  using Leases = std::vector<std::uint64_t>;
  Turn& turn() { return growing_; }
  /// What is committed once the broker knows of all that was unmapped.
  Bytes committed_and_told();
  /// Maps `portion` at the end, if `rest` succeeds then. Nothing is kept otherwise.
  Result<void> take(Portion portion, const std::function<Result<void>()>& rest);
  /// Tells the broker that `leases` are let go of, and what it could not be told before.
  Result<void> give_back(Leases leases);

  // Trimmable. Nothing below what is in use is given back.
  std::size_t device_index() const override { return device_.index; }
  Bytes surplus() const override { return committed().minus({figures_.wanted()}); }
  Bytes trim(Bytes wanted) override;

  Connection& connection() { return *connection_; }
  std::uint64_t id() const { return id_; }
  std::uint64_t base() const { return reservation_.base(); }
  Bytes committed() const { return {figures_.committed()}; }
  Bytes limit() const { return limit_; }
  Bytes granularity() const { return granularity_; }
  const SharedDevice& device() const { return device_; }

 private:
  SliceState(std::shared_ptr<Connection> connection, SharedDevice device, const v1::OpenSliceResponse& opened,
             cuda::Reservation reservation, bool trimmed);
  struct Unmapped {
    Leases leases;     ///< to be given back
    Bytes bytes;       ///< how much they are
    Result<void> all;  ///< why it is less than asked for
  };
  /// Unmaps whole extents from the end on, as long as `floor` stays and until it is `enough`.
  Unmapped unmap(Bytes floor, Bytes enough) GPUMEM_REQUIRES(mutex_);
  /// Unmaps from the end down to `end`. What the driver refuses stays mapped, with all below it.
  Result<void> unmap_from(cuda::Address end) GPUMEM_REQUIRES(mutex_);
  Result<void> return_batch(const Leases& leases);

  const std::shared_ptr<Connection> connection_;
  const SharedDevice device_;
  const std::uint64_t id_;
  const Bytes limit_;
  const Bytes granularity_;
  const cuda::Reservation reservation_;
  const bool trimmed_;  ///< SliceOptions::trim_on_pressure
  SliceFigures figures_;
  Turn growing_;
  std::shared_mutex returning_;  ///< shared: from unmapping until the broker has been told
  Mutex mutex_;
  std::vector<cuda::Mapping> mappings_ GPUMEM_GUARDED_BY(mutex_);
  std::vector<Portion::Extent> extents_ GPUMEM_GUARDED_BY(mutex_);
  std::vector<Leases> owed_ GPUMEM_GUARDED_BY(mutex_);  ///< unmapped, but the broker could not be told yet
};

}  // namespace gpumem::client
