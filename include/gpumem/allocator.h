#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/denial.h"
#include "gpumem/detail/c.h"
#include "gpumem/detail/listings.h"
#include "gpumem/ipc.h"
#include "gpumem/options.h"
#include "gpumem/result.h"
#include "gpumem/statistics.h"

namespace gpumem {

/// Serves blocks of any size from one device's memory, in stream order. A block that was freed on a stream
/// can serve that stream again at once. It serves another stream only after the work given to the first so
/// far. Nothing synchronises the whole device. Blocks are aligned to 256 bytes. Their content is undefined.
/// Unused memory is returned to the broker: at once when it asks, else after AllocatorOptions::idle.
/// Streams  of the device's primary context, or of the context that is current at the stream's first use; at
///          most 4,095 at a time. With drivers before CUDA 12.0, release one before you destroy it.
/// Threads  any. A block may be freed by another thread than the one that allocated it.
/// Fork     a child process may not use its parent's allocators. Every call returns kFailedPrecondition, and
///          destroying one there does nothing.
/// A moved-from or closed allocator returns kFailedPrecondition.
class Allocator {
 public:
  /// For deallocate: the caller does not know the size.
  static constexpr Bytes kUnknownSize{std::numeric_limits<std::uint64_t>::max()};

  Allocator(Allocator&&) noexcept = default;
  Allocator& operator=(Allocator&&) noexcept = default;
  /// Waits for the work on freed blocks and returns all memory, including blocks still in use. The caller
  /// must have synchronised its work on those.
  ~Allocator() = default;

  /// Allocates `bytes` (not zero) for work on `stream` and work ordered after it. Returns the address.
  /// Errors  kResourceExhausted, kDeadlineExceeded with the broker's Denial: others hold the memory, and all
  ///         that is cached here was tried. Nothing has changed. kResourceExhausted without a Denial: more
  ///         than the limit; too many streams. kInvalidArgument (zero, a tag that tag() has not given),
  ///         kCancelled (a handler of the program took a signal to end while this waited), kUnavailable (the
  ///         broker is gone), kUnauthenticated (it ended the session), kFailedPrecondition (forked, closed,
  ///         moved from).
  /// Blocks  only while more memory is requested: up to AllocatorOptions::wait.
  Result<std::uint64_t, GrowError> allocate(Bytes bytes, StreamHandle stream = nullptr,
                                            const Placement& placement = {});

  /// Frees the block at `address` in the order of `stream`. Work given to the stream so far may still use it.
  /// `bytes`  as it was allocated or last extended; or kUnknownSize.
  /// Errors  kInvalidArgument: no block begins there, it was freed already, or it has another size. Nothing
  ///         has changed then. kResourceExhausted and the driver's: the stream is new here and cannot be
  ///         added. kFailedPrecondition (forked, closed, moved from).
  /// If two threads free one block at the same moment, both calls may succeed. The block is freed once.
  Result<void> deallocate(std::uint64_t address, Bytes bytes, StreamHandle stream = nullptr);

  /// Makes the block at `address` `to` bytes long, in place. Its content stays.
  /// Longer: never fails for lack of addresses while `to` is within Placement::room.
  /// Shorter: frees the end of the block, and its room.
  /// Errors  as allocate and deallocate; kAborted: something else lies after the block, and it has no room.
  Result<void, GrowError> extend(std::uint64_t address, Bytes bytes, Bytes to, StreamHandle stream = nullptr);

  /// A handle of [address + offset, address + offset + bytes), in the block at `address`. Zero bytes: the
  /// rest of the block. As Slice::export_handle; the whole extents that the range lies in are mapped there,
  /// with what else lies in them. The block must not be freed while others use it: the import keeps the
  /// memory, but the allocator would use it anew.
  /// Errors  as Slice::export_handle; kInvalidArgument: no block begins there; beyond it.
  Result<IpcHandle> export_handle(std::uint64_t address, Bytes offset = {}, Bytes bytes = {},
                                  const ExportOptions& options = {});

  /// Work of `stream`, too, uses the block at `address`. When the block is freed, its memory serves nobody
  /// until the device has come to the end of the work given to `stream` until then. The stream must not be
  /// destroyed before the block is freed, unless release_stream was called. The per-thread default stream:
  /// the block waits for the legacy default stream, which comes after it.
  /// Errors  kInvalidArgument: no block begins there. kResourceExhausted and the driver's, as deallocate.
  Result<void> record_stream(std::uint64_t address, StreamHandle stream);

  /// Forgets `stream`, which is about to be destroyed. What was freed on it serves other streams after its
  /// work.
  /// Errors  the driver's (the stream is being captured into a graph); then the stream is not forgotten.
  Result<void> release_stream(StreamHandle stream);

  /// Gives back at least `bytes`, as far as there are wholly free extents after flushing the threads' caches.
  /// Waits for work on the device that still uses them. Returns how much. Memory that was freed on a stream
  /// while the stream was captured stays, until a call names the stream again.
  Result<Bytes> trim(Bytes bytes = kUnknownSize);

  /// The tag of `name` (at most 63 bytes); the same name has the same tag.
  /// Errors  kInvalidArgument, kResourceExhausted: more than 255 names.
  Result<Tag> tag(std::string_view name);

  Result<AllocatorStatistics> statistics() const;
  /// The peaks of statistics() are counted anew, from what is there now.
  Result<void> reset_peaks();
  /// Every block in use, in address order. Blocks other calls meanwhile.
  Result<std::vector<BlockInfo>> snapshot() const;

  /// Returns all memory, as the destructor does, but only if no block is in use.
  /// Errors  kFailedPrecondition: blocks are in use, and nothing has changed. Or it is closed, but a graph
  ///         is being captured, so memory that work may still use stays mapped. kInternal: closed, but the
  ///         driver has not unmapped everything. The rest is returned when the session ends.
  Result<void> close();

  /// As gpumem_allocator_limit: without a limit of its own, what the device can lend, not the tenant's limit.
  Bytes limit() const { return {handle_ ? gpumem_allocator_limit(handle_.get()) : 0}; }
  Bytes granularity() const { return {handle_ ? gpumem_allocator_granularity(handle_.get()) : 0}; }
  /// UUID and this process's ordinal of the device.
  const std::string& device() const { return device_; }
  int ordinal() const { return handle_ ? gpumem_allocator_ordinal(handle_.get()) : -1; }

  /// This allocator's handle for the C interface. This object owns it: it must not be closed or freed. Null:
  /// moved from.
  gpumem_allocator* c_handle() const { return handle_.get(); }

 private:
  friend class Session;
  explicit Allocator(gpumem_allocator* handle)
      : handle_(handle), device_(detail::cpp_text(gpumem_allocator_device(handle))) {}
  static Error moved_from() { return detail::moved_from("allocator"); }

  detail::Handle<gpumem_allocator> handle_;
  std::string device_;
};

inline Result<std::uint64_t, GrowError> Allocator::allocate(Bytes bytes, StreamHandle stream,
                                                            const Placement& placement) {
  if (!handle_) return GrowError(moved_from());
  gpumem_address address = 0;
  gpumem_status status = GPUMEM_OK;
  if (placement.tag.number == 0 && placement.room.is_zero()) {
    status = gpumem_allocate(handle_.get(), bytes.count, stream, &address);
  } else {
    gpumem_placement given = GPUMEM_PLACEMENT_INIT;
    given.tag = placement.tag.number;
    given.room = placement.room.count;
    status = gpumem_allocate_placed(handle_.get(), bytes.count, stream, &given, &address);
  }
  if (status == GPUMEM_OK) return address;
  return detail::last_grow_error(status);
}

inline Result<void> Allocator::deallocate(std::uint64_t address, Bytes bytes, StreamHandle stream) {
  if (!handle_) return moved_from();
  return detail::done(gpumem_deallocate(handle_.get(), address, bytes.count, stream));
}

inline Result<void, GrowError> Allocator::extend(std::uint64_t address, Bytes bytes, Bytes to,
                                                 StreamHandle stream) {
  if (!handle_) return GrowError(moved_from());
  return detail::done_growing(gpumem_extend(handle_.get(), address, bytes.count, to.count, stream));
}

inline Result<IpcHandle> Allocator::export_handle(std::uint64_t address, Bytes offset, Bytes bytes,
                                                  const ExportOptions& options) {
  if (!handle_) return moved_from();
  return detail::exported(options, [&](const gpumem_export_options* given, IpcHandle* handle) {
    return gpumem_allocator_export(handle_.get(), address, offset.count, bytes.count, given, handle);
  });
}

inline Result<void> Allocator::record_stream(std::uint64_t address, StreamHandle stream) {
  if (!handle_) return moved_from();
  return detail::done(gpumem_record_stream(handle_.get(), address, stream));
}

inline Result<void> Allocator::release_stream(StreamHandle stream) {
  if (!handle_) return moved_from();
  return detail::done(gpumem_release_stream(handle_.get(), stream));
}

inline Result<Bytes> Allocator::trim(Bytes bytes) {
  if (!handle_) return moved_from();
  std::uint64_t given = 0;
  const gpumem_status status = gpumem_allocator_trim(handle_.get(), bytes.count, &given);
  return detail::done(status, given);
}

inline Result<Tag> Allocator::tag(std::string_view name) {
  if (!handle_) return moved_from();
  Tag tag;
  const gpumem_status status = gpumem_tag(handle_.get(), std::string(name).c_str(), &tag.number);
  if (status == GPUMEM_OK) return tag;
  return detail::last_error(status);
}

inline Result<AllocatorStatistics> Allocator::statistics() const {
  if (!handle_) return moved_from();
  gpumem_statistics known = GPUMEM_STATISTICS_INIT;
  gpumem_status status = gpumem_allocator_statistics(handle_.get(), &known);
  detail::Listing<gpumem_size_class, SizeClassStatistics> classes(detail::size_class_of);
  if (status == GPUMEM_OK) {
    status = gpumem_allocator_size_classes(handle_.get(), classes.visitor, &classes);
  }
  if (status != GPUMEM_OK) return detail::last_error(status);
  return detail::statistics_of(known, classes.take());
}

inline Result<void> Allocator::reset_peaks() {
  if (!handle_) return moved_from();
  return detail::done(gpumem_allocator_reset_peaks(handle_.get()));
}

inline Result<std::vector<BlockInfo>> Allocator::snapshot() const {
  if (!handle_) return moved_from();
  detail::Listing<gpumem_block, BlockInfo> blocks(detail::block_of);
  const gpumem_status status = gpumem_allocator_snapshot(handle_.get(), blocks.visitor, &blocks);
  if (status != GPUMEM_OK) return detail::last_error(status);
  return blocks.take();
}

inline Result<void> Allocator::close() {
  if (!handle_) return moved_from();
  return detail::done(gpumem_allocator_close(handle_.get()));
}

}  // namespace gpumem
