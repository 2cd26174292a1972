#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "gpumem/bytes.h"
#include "gpumem/denial.h"
#include "gpumem/result.h"

namespace gpumem {
namespace client {
class SliceState;
}

struct SliceOptions {
  std::string device{};  ///< UUID; empty: the first device that both the broker and this process see
  Bytes limit{};         ///< zero: the tenant's limit on the device
  std::string label{};   ///< for people, shown by `gpumem ps`
  /// Memory beyond what is in use (Slice::set_in_use) may be given back without asking when the broker asks
  /// this session for memory. False: what is in use is a figure for people only.
  bool trim_on_pressure = false;
};

struct GrowOptions {
  /// How long to wait for memory that others hold now. Zero: not at all.
  std::chrono::milliseconds wait{0};
  /// The committed size that is enough, where all of the target cannot be had. Zero: the target.
  Bytes least{};
  /// Calls the growth off: it then answers kCancelled, and nothing has changed.
  std::stop_token stop{};
};

/// A quota-limited range of device addresses: reserved at its limit when opened, backed as it grows.
/// Invariant  [base, base + committed) is mapped, readable and writable by the device, and what has been
///            mapped since the last growth reads as zero.
/// Threads    any. Growths of one slice take turns; one that waits does not hold up shrink or the figures.
/// Fork       a child process may not use its parent's slices: every call answers kFailedPrecondition, and
///            destroying one there does nothing.
/// A slice that goes gives its memory back; the caller has synchronised its work on it.
class Slice {
 public:
  Slice(Slice&&) noexcept;
  Slice& operator=(Slice&&) noexcept;
  ~Slice();

  /// Grows until `target` bytes are committed, rounded up to the granularity; already there: nothing happens.
  /// Answers the committed size. All or nothing, save that a shrink meanwhile still counts.
  /// With `options.least`, waits until that much is committed and takes more, up to the target, as far as it
  /// can be had then. What is enough already is wished for once, without waiting: a refusal is no error.
  /// Errors  kResourceExhausted (a limit, or no memory and no time to wait), kDeadlineExceeded (waited in
  ///         vain): with a Denial, nothing has changed; kCancelled (`options.stop`; nothing has changed);
  ///         kUnavailable (the broker is gone), kUnauthenticated (it ended the session), kInvalidArgument
  ///         (`target` near 2^64 or under `least`), kFailedPrecondition (forked, closed).
  Result<Bytes, GrowError> grow(Bytes target, GrowOptions options = {});

  /// Gives memory back, from the end on, as long as at least `target` stays committed: extents go whole.
  /// Answers the committed size, which may be over `target`. The caller has synchronised its work there.
  /// Errors  kUnavailable (the broker is gone), kUnauthenticated, kDeadlineExceeded (it does not answer):
  ///         the memory is unmapped all the same, and the next call tells the broker again;
  ///         kInternal (the driver does not unmap it: it stays committed); kFailedPrecondition (forked,
  ///         closed).
  Result<Bytes> shrink(Bytes target);

  /// Gives at least `bytes` back, from the end on and in whole extents, as far as at least `keep` stays
  /// committed. Answers how much. The caller has synchronised its work there.
  /// Errors  as shrink.
  Result<Bytes> release(Bytes bytes, Bytes keep = {});

  /// The first address; never changes. A CUdeviceptr in value.
  std::uint64_t base() const;
  Bytes committed() const;
  Bytes limit() const;
  Bytes granularity() const;
  /// UUID and this process's ordinal of the device.
  const std::string& device() const;
  int ordinal() const;

  /// Says how much of the slice, from its base on, holds something: shown by `gpumem ps`. Answers whether all
  /// of that is committed. A figure only, and free of cost, unless the slice has
  /// SliceOptions::trim_on_pressure. There, what lies beyond `in_use` may vanish at any moment, and what lies
  /// below, committed already or grown later, stays until the program shrinks the slice or lowers the figure.
  /// So a program raises it before it uses more, and grows if the answer is false:
  ///     if (!slice.set_in_use(size)) slice.grow(size);   // [base, base + size) stays
  /// and lowers it when the device's work on what lies beyond is done (synchronised).
  bool set_in_use(Bytes in_use);

 private:
  friend class Session;
  explicit Slice(std::unique_ptr<client::SliceState> state);
  std::unique_ptr<client::SliceState> state_;
};

}  // namespace gpumem
