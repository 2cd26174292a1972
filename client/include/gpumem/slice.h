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
  Bytes limit{};         ///< zero: none but the tenant's, as it is at any time
  std::string label{};   ///< for people, shown by `gpumem ps`
  /// When the broker asks for memory, the library may give back what lies beyond Slice::set_in_use without
  /// asking the program. False: the figure is only shown to people.
  bool trim_on_pressure = false;
};

struct GrowOptions {
  /// How long to wait for memory that others hold now. Zero: not at all.
  std::chrono::milliseconds wait{0};
  /// The committed size that is enough if the whole target is not available. Zero: the target.
  Bytes least{};
  /// Cancels the growth. It then returns kCancelled, and nothing has changed.
  std::stop_token stop{};
};

/// A quota-limited range of device addresses. Its limit is reserved when it is opened; memory is added as it
/// grows.
/// Invariant  [base, base + committed) is mapped, readable and writable by the device, and what has been
///            mapped since the last growth reads as zero.
/// Threads    any. One growth of a slice at a time. A waiting growth does not block shrink or the figures.
/// Fork       a child process may not use its parent's slices. Every call returns kFailedPrecondition, and
///            destroying one there does nothing.
/// The destructor gives the memory back. The caller must have synchronised its work on it.
class Slice {
 public:
  Slice(Slice&&) noexcept;
  Slice& operator=(Slice&&) noexcept;
  ~Slice();

  /// Grows until `target` bytes, rounded up to the granularity, are committed. Does nothing if they are
  /// already. Returns the committed size. All or nothing, except that a concurrent shrink still counts. With
  /// `options.least`, waits until that much is committed, and then takes more, up to the target, as far as
  /// available. If `least` is committed already, requests more once without waiting; a refusal is no error.
  /// Errors  kResourceExhausted (a limit, or no memory and no time to wait), kDeadlineExceeded (waited in
  ///         vain): with a Denial, nothing has changed; kCancelled (`options.stop`; nothing has changed);
  ///         kUnavailable (the broker is gone, or does not answer), kUnauthenticated (it ended the session),
  ///         kInvalidArgument (`target` near 2^64 or under `least`), kFailedPrecondition (forked, closed).
  Result<Bytes, GrowError> grow(Bytes target, GrowOptions options = {});

  /// Gives memory back from the end, in whole extents, and keeps at least `target`. Returns the committed
  /// size, which may exceed `target`. The caller must have synchronised its work on that memory.
  /// Errors  kUnavailable (the broker is gone, or does not answer), kUnauthenticated: the memory is unmapped
  ///         all the same, and the next call tells the broker again; kInternal (the driver does not unmap it:
  ///         it stays committed); kFailedPrecondition (forked, closed).
  Result<Bytes> shrink(Bytes target);

  /// Gives at least `bytes` back from the end, in whole extents, but keeps at least `keep`. Returns how much.
  /// The caller must have synchronised its work on that memory.
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

  /// Declares how much of the slice, from its base, is in use; `gpumem ps` shows it. Returns whether all of
  /// that is committed. Without SliceOptions::trim_on_pressure this is only a figure, and costs nothing. With
  /// it, memory beyond `in_use` may be unmapped at any time. Memory below, committed now or later, stays
  /// until the program shrinks the slice or lowers the figure. So raise the figure before using more, and
  /// grow if it returns false:
  ///     if (!slice.set_in_use(size)) slice.grow(size);   // [base, base + size) stays
  /// Lower it only after the device's work on the memory beyond is done (synchronised).
  bool set_in_use(Bytes in_use);

 private:
  friend class Session;
  explicit Slice(std::unique_ptr<client::SliceState> state);
  std::unique_ptr<client::SliceState> state_;
};

}  // namespace gpumem
