#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/denial.h"
#include "gpumem/result.h"

namespace gpumem {
namespace allocator {
class Engine;
}

/// A CUstream or cudaStream_t in value. Null and 1: the legacy default stream; 2: the calling thread's own.
using StreamHandle = void*;

struct AllocatorOptions {
  std::string device{};  ///< UUID; empty: the first device that both the broker and this process see
  Bytes limit{};         ///< zero: none but the tenant's, as it is at any time
  std::string label{};   ///< for people, shown by `gpumem ps`
  /// How long an allocation may wait for memory that others hold now. Zero: not at all.
  std::chrono::milliseconds wait{0};
  /// Memory that has been idle for this long is returned to the broker.
  std::chrono::milliseconds idle{2'000};
  /// Requests memory ahead of need, in the background, while usage rises.
  bool grow_ahead = true;
};

/// A name for blocks in a snapshot: Allocator::tag.
struct Tag {
  std::uint8_t number = 0;  ///< zero: no name
};

struct Placement {
  Tag tag{};
  /// Addresses, without memory, reserved after the block for Allocator::extend. Zero: none.
  Bytes room{};
};

struct SizeClassStatistics {
  Bytes size;                     ///< the largest block of the class
  std::uint64_t in_use = 0;       ///< blocks
  std::uint64_t allocations = 0;  ///< since the beginning
  std::uint64_t cache_hits = 0;   ///< of them served from the calling thread's cache
};

struct AllocatorStatistics {
  Bytes in_use;       ///< requested and not freed
  Bytes placed;       ///< what the blocks in use take, including rounding
  Bytes cached;       ///< free, in the caches of threads
  Bytes committed;    ///< lent by the broker
  Bytes returnable;   ///< the part of `committed` in wholly free extents
  Bytes reserved;     ///< addresses
  Bytes peak_in_use;  ///< the most that blocks took, including rounding and caches
  Bytes peak_committed;
  double fragmentation = 0;  ///< the part of `committed` that is not placed, cached or returnable
  std::uint64_t allocations = 0;
  std::uint64_t cache_hits = 0;
  std::uint64_t growths = 0;                 ///< requests to the broker that were granted
  std::uint64_t refused = 0;                 ///< requests to the broker that were refused
  std::uint64_t moved_extents = 0;           ///< remapped at another address
  std::uint64_t given_back = 0;              ///< extents
  std::vector<SizeClassStatistics> classes;  ///< those ever used; all larger blocks are the last one
};

/// A block in use.
struct BlockInfo {
  std::uint64_t address = 0;
  Bytes bytes;                       ///< as requested
  Bytes placed;                      ///< including rounding
  StreamHandle stream = nullptr;     ///< the stream it was allocated on
  std::chrono::milliseconds age{0};  ///< to within a second
  std::string tag{};
};

/// Serves blocks of any size from one device's memory, in stream order. A block that was freed on a stream
/// can serve that stream again at once. It serves another stream only after the work given to the first so
/// far. Nothing synchronises the whole device. Blocks are aligned to 256 bytes. Their content is undefined.
/// Unused memory is returned to the broker: at once when it asks, else after AllocatorOptions::idle.
/// Streams  of the device's primary context, or of the context that is current at the stream's first use; at
///          most 4,095 at a time. Pass a stream to release_stream before destroying it.
/// Threads  any. A block may be freed by another thread than the one that allocated it.
/// Fork     a child process may not use its parent's allocators. Every call returns kFailedPrecondition, and
///          destroying one there does nothing.
/// A moved-from or closed allocator returns kFailedPrecondition.
class Allocator {
 public:
  /// For deallocate: the caller does not know the size.
  static constexpr Bytes kUnknownSize{std::numeric_limits<std::uint64_t>::max()};

  Allocator(Allocator&&) noexcept;
  Allocator& operator=(Allocator&&) noexcept;
  /// Waits for the work on freed blocks and returns all memory, including blocks still in use. The caller
  /// must have synchronised its work on those.
  ~Allocator();

  /// Allocates `bytes` (not zero) for work on `stream` and work ordered after it. Returns the address.
  /// Errors  kResourceExhausted, kDeadlineExceeded with the broker's Denial: others hold the memory, and all
  ///         that is cached here was tried; nothing has changed. kResourceExhausted without a Denial: more
  ///         than the limit; too many streams. kInvalidArgument (zero, a tag that tag() has not given),
  ///         kUnavailable (the broker is gone), kUnauthenticated (it ended the session), kFailedPrecondition
  ///         (forked, closed, moved from).
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

  /// Forgets `stream`, which is about to be destroyed. What was freed on it serves other streams after its
  /// work.
  /// Errors  the driver's (the stream is being captured into a graph); then the stream is not forgotten.
  Result<void> release_stream(StreamHandle stream);

  /// Gives back at least `bytes`, as far as there are wholly free extents after flushing the threads' caches.
  /// Waits for work on the device that still uses them. Returns how much. Blocks that other threads cache for
  /// their per-thread default stream (2) stay, because only those threads can tell where its work is.
  Result<Bytes> trim(Bytes bytes = kUnknownSize);

  /// The tag of `name` (at most 63 bytes); the same name has the same tag.
  /// Errors  kInvalidArgument, kResourceExhausted: more than 255 names.
  Result<Tag> tag(std::string_view name);

  Result<AllocatorStatistics> statistics() const;
  /// Every block in use, in address order. Blocks other calls meanwhile.
  Result<std::vector<BlockInfo>> snapshot() const;

  /// Returns all memory, as the destructor does, but only if no block is in use.
  /// Errors  kFailedPrecondition: blocks are in use; nothing has changed. kInternal: closed, but the driver
  ///         has not unmapped everything; the rest is returned when the session ends.
  Result<void> close();

  Bytes limit() const;
  Bytes granularity() const;
  /// UUID and this process's ordinal of the device.
  const std::string& device() const;
  int ordinal() const;

 private:
  friend class Session;
  friend struct AllocatorAccess;  ///< the C ABI and the adapters, within the library
  explicit Allocator(std::shared_ptr<allocator::Engine> engine);
  std::shared_ptr<allocator::Engine> engine_;
};

}  // namespace gpumem
