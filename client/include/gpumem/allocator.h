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
  Bytes limit{};         ///< zero: the tenant's limit on the device
  std::string label{};   ///< for people, shown by `gpumem ps`
  /// How long an allocation may wait for memory that others hold now. Zero: not at all.
  std::chrono::milliseconds wait{0};
  /// Memory that nobody here has needed for so long goes back to the broker.
  std::chrono::milliseconds idle{2'000};
  /// Asks the broker for memory ahead of need, in the background, while use goes up.
  bool grow_ahead = true;
};

/// A name for blocks in a snapshot: Allocator::tag.
struct Tag {
  std::uint8_t number = 0;  ///< zero: no name
};

struct Placement {
  Tag tag{};
  /// Addresses, not memory, kept behind the block for Allocator::extend. Zero: none.
  Bytes room{};
};

struct SizeClassStatistics {
  Bytes size;                     ///< of the class's blocks: the largest that may be asked for in it
  std::uint64_t in_use = 0;       ///< blocks
  std::uint64_t allocations = 0;  ///< since the beginning
  std::uint64_t cache_hits = 0;   ///< of them served from the calling thread's cache
};

struct AllocatorStatistics {
  Bytes in_use;       ///< asked for and not freed
  Bytes placed;       ///< what the blocks in use take, their rounding included
  Bytes cached;       ///< free, in the caches of threads
  Bytes committed;    ///< lent by the broker
  Bytes returnable;   ///< of `committed`: in wholly free extents
  Bytes reserved;     ///< addresses
  Bytes peak_in_use;  ///< the most that blocks took, their rounding and what is cached for them included
  Bytes peak_committed;
  double fragmentation = 0;  ///< of `committed`: neither placed, nor cached, nor returnable
  std::uint64_t allocations = 0;
  std::uint64_t cache_hits = 0;
  std::uint64_t growths = 0;                 ///< requests to the broker that were granted
  std::uint64_t refused = 0;                 ///< and those that were not
  std::uint64_t moved_extents = 0;           ///< mapped under another address, to make room
  std::uint64_t given_back = 0;              ///< extents
  std::vector<SizeClassStatistics> classes;  ///< those that were ever used; last, all larger blocks as one
};

/// A block in use.
struct BlockInfo {
  std::uint64_t address = 0;
  Bytes bytes;                       ///< as asked for
  Bytes placed;                      ///< as it takes
  StreamHandle stream = nullptr;     ///< it was allocated on
  std::chrono::milliseconds age{0};  ///< to within a second
  std::string tag{};
};

/// Memory of one device in blocks of any size, in the order of streams: a block that was freed on a stream
/// serves that stream again at once, and another one only after the work given to the first so far. Nothing
/// waits for the device as a whole. Blocks lie at multiples of 256 bytes; their content is undefined.
/// What is not needed goes back to the broker: at once when it asks, else after AllocatorOptions::idle.
/// Streams  of the device's primary context, or of the one that is current when the stream is first used; at
///          most 4,095 at a time. A stream that is to be destroyed is named to release_stream first.
/// Threads  any; a block may be freed by another thread than allocated it.
/// Fork     a child process may not use its parent's allocators: every call answers kFailedPrecondition, and
///          destroying one there does nothing.
/// One that has been moved from or closed answers kFailedPrecondition.
class Allocator {
 public:
  /// What deallocate takes for a size that the caller does not know.
  static constexpr Bytes kUnknownSize{std::numeric_limits<std::uint64_t>::max()};

  Allocator(Allocator&&) noexcept;
  Allocator& operator=(Allocator&&) noexcept;
  /// Waits for the work on the blocks that were freed, and gives everything back. Blocks still in use are
  /// gone, too: the caller has synchronised its work on them.
  ~Allocator();

  /// The address of `bytes` (not zero) of memory, for work on `stream` and what is ordered behind it.
  /// Errors  kResourceExhausted, kDeadlineExceeded: not without memory that others hold, with the broker's
  ///         Denial, after everything that is cached here was tried; nothing has changed.
  ///         kResourceExhausted without a Denial: more than the limit; too many streams.
  ///         kInvalidArgument (zero, a tag that tag() has not given), kUnavailable (the broker is gone),
  ///         kUnauthenticated (it ended the session), kFailedPrecondition (forked, closed, moved from).
  /// Blocks   only while more memory is asked for: up to AllocatorOptions::wait.
  Result<std::uint64_t, GrowError> allocate(Bytes bytes, StreamHandle stream = nullptr,
                                            const Placement& placement = {});

  /// Frees the block at `address`, in the order of `stream`: work given to it so far may still use the block.
  /// `bytes`  as it was allocated or last extended; or kUnknownSize.
  /// Errors  kInvalidArgument: no block begins there, it was freed already, or it has another size. Nothing
  ///         has changed then. kResourceExhausted and the driver's: of a stream that is new here.
  ///         kFailedPrecondition (forked, closed, moved from).
  /// Two threads that free one block at the same moment may both be told that they did; it serves once.
  Result<void> deallocate(std::uint64_t address, Bytes bytes, StreamHandle stream = nullptr);

  /// Makes the block at `address` `to` bytes long, in place; what it holds stays.
  /// To more: never fails for want of addresses as long as `to` is within Placement::room.
  /// To less: the end is given up, and with it what room there was.
  /// Errors  as allocate and deallocate; kAborted: something else lies behind it, and there is no room.
  Result<void, GrowError> extend(std::uint64_t address, Bytes bytes, Bytes to, StreamHandle stream = nullptr);

  /// Forgets `stream`, which is about to be destroyed: what was freed on it serves others after its work.
  /// Errors  the driver's (its work is being captured into a graph): it is not forgotten.
  Result<void> release_stream(StreamHandle stream);

  /// Gives back at least `bytes`, as far as wholly free extents, the threads' caches included, add up to it.
  /// Waits for work on the device that still uses them. Answers how much. What other threads cache for their
  /// own default streams (2) stays: only they can tell where that work is.
  Result<Bytes> trim(Bytes bytes = kUnknownSize);

  /// The tag of `name` (at most 63 bytes); the same name has the same tag.
  /// Errors  kInvalidArgument, kResourceExhausted: more than 255 names.
  Result<Tag> tag(std::string_view name);

  Result<AllocatorStatistics> statistics() const;
  /// Every block in use, by address. Blocks other calls for as long as it looks.
  Result<std::vector<BlockInfo>> snapshot() const;

  /// Gives everything back, as the destructor does, but only if no block is in use.
  /// Errors  kFailedPrecondition: so many are in use; nothing has changed. kInternal: closed, but the driver
  ///         has not unmapped everything, and keeps it until the session ends.
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
