#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "client/session/mapping.h"
#include "client/slice/borrower.h"
#include "gpumem/options.h"

namespace gpumem::client {

/// The implementation of Slice.
/// Invariant  the extents lie one after the other from the base on, in the order of `extents_`, and end at
///            `committed()`; each of `mappings_` covers those of one grant.
/// Threads    any. `mutex_` guards what is mapped; it is held for driver calls and the answer to a grant.
class SliceState final : public Borrower, public Trimmable {
 public:
  /// Errors  as Session::open_slice.
  static Result<std::unique_ptr<SliceState>> open(std::shared_ptr<Connection> connection,
                                                  const SliceOptions& options);
  /// Returns all memory. Not run in a forked child.
  ~SliceState() override;

  Result<Bytes> shrink(Bytes target);
  Result<Bytes> release(Bytes bytes, Bytes keep);
  /// As Slice::set_in_use.
  bool set_in_use(Bytes in_use);

  /// As Slice::export_handle.
  Result<lane::HandleBytes> export_handle(Bytes offset, Bytes bytes, const ExportOptions& options);
  /// As Slice::publish.
  Result<std::uint64_t> publish(const std::string& name, Bytes offset, Bytes bytes,
                                const PublishOptions& options);

  /// Maps `portion` at the end and calls `rest`. If that fails, nothing is kept.
  Result<void> take(Portion portion, const std::function<Result<void>()>& rest) override;

  // Trimmable. Nothing below what is in use is given back.
  std::size_t device_index() const override { return device().index; }
  Bytes surplus() const override { return committed().minus({figures().wanted()}); }
  Bytes trim(Bytes wanted) override;

  std::uint64_t base() const { return addresses_.base(); }

 private:
  SliceState(std::shared_ptr<Connection> connection, Opened opened, Addresses addresses,
             const cuda::Driver* pinned, bool trimmed);
  Result<Mapping> map(const Portion& portion);
  Result<ExportedRange> range_of(Bytes offset, Bytes bytes);
  /// Makes the extents of the range, which is committed, readable only.
  Result<void> seal(Bytes offset, Bytes bytes);
  struct Unmapped {
    Leases leases;     ///< to be given back
    Bytes bytes;       ///< their size
    Result<void> all;  ///< the error, if less than requested was unmapped
  };
  /// Unmaps whole extents from the end until `enough` is unmapped, and keeps at least `floor`.
  Unmapped unmap(Bytes floor, Bytes enough) GPUMEM_REQUIRES(mutex_);
  /// Unmaps from the end down to `end`. If the driver refuses, that memory and all below it stay mapped.
  Result<void> unmap_from(cuda::Address end) GPUMEM_REQUIRES(mutex_);

  const Addresses addresses_;
  const cuda::Driver* const pinned_;  ///< the driver that pins host memory; null: it is not pinned
  const bool trimmed_;                ///< SliceOptions::trim_on_pressure
  Mutex mutex_;
  std::vector<Mapping> mappings_ GPUMEM_GUARDED_BY(mutex_);
  std::vector<Portion::Extent> extents_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::client
