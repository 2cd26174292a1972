#pragma once
#include <cstdint>
#include <string>

#include "gpumem/bytes.h"
#include "gpumem/denial.h"
#include "gpumem/detail/c.h"
#include "gpumem/detail/growth.h"
#include "gpumem/ipc.h"
#include "gpumem/options.h"
#include "gpumem/region.h"
#include "gpumem/result.h"

namespace gpumem {

/// A quota-limited range of addresses: of a device, or of this process for memory of the host store. Its
/// limit is reserved when it is opened; memory is added as it grows. Invariant  [base, base + committed) is
/// mapped, readable and writable by the device, and what has been
///            mapped since the last growth reads as zero.
/// Threads    any. One growth of a slice at a time. A waiting growth does not block shrink or the figures.
/// Fork       a child process may not use its parent's slices. Every call returns kFailedPrecondition, and
///            destroying one there does nothing. A child has memory of the host store until it ends.
/// The destructor gives the memory back. The caller must have synchronised its work on it.
class Slice {
 public:
  Slice(Slice&&) noexcept = default;
  Slice& operator=(Slice&&) noexcept = default;
  ~Slice() = default;

  /// Grows until `target` bytes, rounded up to the granularity, are committed. Does nothing if they are
  /// already. Returns the committed size. All or nothing, except that a concurrent shrink still counts. With
  /// `options.least`, waits until that much is committed, and then takes more, up to the target, as far as
  /// available. If `least` is committed already, requests more once without waiting; a refusal is no error.
  /// Errors  kResourceExhausted (a limit, or no memory and no time to wait), kDeadlineExceeded (waited in
  ///         vain): with a Denial, nothing has changed; kCancelled (`options.stop`, or a signal to end;
  ///         nothing has changed); kUnavailable (the broker is gone, or does not answer), kUnauthenticated
  ///         (it ended the session), kInvalidArgument (`target` near 2^64 or under `least`),
  ///         kFailedPrecondition (forked, closed).
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

  /// Returns a handle of [base + offset, base + offset + bytes), with which another session of the tenant
  /// maps that memory (Session::import_handle). `bytes`: zero for all that is committed behind `offset`. It
  /// ends when it is used up or expires, and with any of the memory. The device's work on the memory is not
  /// waited for.
  /// Errors  kInvalidArgument (not committed, too long a life), kResourceExhausted (over 128 extents, over
  ///         1,024 handles), kNotFound (given back meanwhile), kUnavailable, kUnauthenticated,
  ///         kFailedPrecondition (forked, closed).
  Result<IpcHandle> export_handle(Bytes offset = {}, Bytes bytes = {}, const ExportOptions& options = {});

  /// Names [base + offset, base + offset + bytes), whose content does not change any more, for other
  /// processes to map (Session::map_region). `bytes`: zero for all that is committed behind `offset`. Returns
  /// its version, higher than that of every region before; earlier ones of the same name stay. The memory
  /// stays charged as it is. The region ends when it is removed or expires, and with any of its memory. The
  /// device's work on it is not waited for.
  /// Errors  kInvalidArgument (not committed, the name, the layout, the readers), kResourceExhausted (over
  ///         128 extents, over 16,384 regions), kNotFound (given back meanwhile), kUnavailable,
  ///         kUnauthenticated, kFailedPrecondition (forked, closed).
  Result<std::uint64_t> publish(const std::string& name, Bytes offset = {}, Bytes bytes = {},
                                const PublishOptions& options = {});

  /// The first address; never changes. A CUdeviceptr in value; in the host store, a pointer of this process.
  std::uint64_t base() const { return gpumem_slice_base(handle_.get()); }
  Bytes committed() const { return {gpumem_slice_committed(handle_.get())}; }
  Bytes limit() const { return {gpumem_slice_limit(handle_.get())}; }
  Bytes granularity() const { return {gpumem_slice_granularity(handle_.get())}; }
  /// UUID and this process's ordinal of the device; `host` and -1: the host store.
  const std::string& device() const { return device_; }
  int ordinal() const { return gpumem_slice_ordinal(handle_.get()); }

  /// This slice's handle for the C interface. This object owns it: it must not be closed or freed. Null:
  /// moved from.
  gpumem_slice* c_handle() const { return handle_.get(); }

  /// Declares how much of the slice, from its base, is in use; `gpumem ps` shows it. Returns whether all of
  /// that is committed. Without SliceOptions::trim_on_pressure this is only a figure, and costs nothing. With
  /// it, memory beyond `in_use` may be unmapped at any time. Memory below, committed now or later, stays
  /// until the program shrinks the slice or lowers the figure. Raise the figure before using more, and grow
  /// if it returns false:
  ///     if (!slice.set_in_use(size)) slice.grow(size);   // [base, base + size) stays
  /// Lower it only after the device's work on the memory beyond is done (synchronised).
  bool set_in_use(Bytes in_use) {
    bool is_committed = false;
    return gpumem_slice_set_in_use(handle_.get(), in_use.count, &is_committed) == GPUMEM_OK && is_committed;
  }

 private:
  friend class Session;
  explicit Slice(gpumem_slice* handle)
      : handle_(handle), device_(detail::cpp_text(gpumem_slice_device(handle))) {}
  static Error moved_from() { return detail::moved_from("slice"); }

  detail::Handle<gpumem_slice> handle_;
  std::string device_;
};

inline Result<Bytes, GrowError> Slice::grow(Bytes target, GrowOptions options) {
  if (!handle_) return GrowError(moved_from());
  const detail::GrowthOptions given(options);
  std::uint64_t committed = 0;
  gpumem_status status = given.status();
  if (status == GPUMEM_OK) {
    status = gpumem_slice_grow(handle_.get(), target.count, given.get(), &committed);
  }
  if (status == GPUMEM_OK) return Bytes{committed};
  return detail::last_grow_error(status);
}

inline Result<IpcHandle> Slice::export_handle(Bytes offset, Bytes bytes, const ExportOptions& options) {
  if (!handle_) return moved_from();
  return detail::exported(options, [&](const gpumem_export_options* given, IpcHandle* handle) {
    return gpumem_slice_export(handle_.get(), offset.count, bytes.count, given, handle);
  });
}

inline Result<std::uint64_t> Slice::publish(const std::string& name, Bytes offset, Bytes bytes,
                                            const PublishOptions& options) {
  if (!handle_) return moved_from();
  return detail::published(options, [&](const gpumem_publish_options* given, std::uint64_t* version) {
    return gpumem_slice_publish(handle_.get(), name.c_str(), offset.count, bytes.count, given, version);
  });
}

inline Result<Bytes> Slice::shrink(Bytes target) {
  if (!handle_) return moved_from();
  std::uint64_t committed = 0;
  const gpumem_status status = gpumem_slice_shrink(handle_.get(), target.count, &committed);
  return detail::done(status, committed);
}

inline Result<Bytes> Slice::release(Bytes bytes, Bytes keep) {
  if (!handle_) return moved_from();
  std::uint64_t released = 0;
  const gpumem_status status = gpumem_slice_release(handle_.get(), bytes.count, keep.count, &released);
  return detail::done(status, released);
}

}  // namespace gpumem
