#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/denial.h"
#include "gpumem/options.h"
#include "gpumem/result.h"

namespace gpumem::allocator {

/// An address of device memory.
using Address = std::uint64_t;

/// One physical allocation, lent by the broker. It cannot be split and is mapped as a whole.
struct Extent {
  std::uint64_t id = 0;  ///< the backing's own, unique while the extent is held
  Bytes size;
};

/// Where an allocator's memory and addresses come from: the broker and the driver, or a test.
/// Invariant  [base, base + addresses) is reserved for as long as this lives.
/// Threads    obtain: any, one call at a time. give_back, export_range, publish: any. The rest: under the
/// allocator's lock.
class Backing {
 public:
  virtual ~Backing() = default;

  /// What never changes.
  struct Properties {
    Address base = 0;
    Bytes addresses;
    Bytes granularity;   ///< sizes of extents are multiples of it
    Bytes limit;         ///< most bytes obtained at one time
    std::string device;  ///< its UUID
    int ordinal = 0;     ///< of the device, in this process
  };
  virtual const Properties& properties() const = 0;

  struct Request {
    Bytes bytes;      ///< a multiple of the granularity
    Bytes min_bytes;  ///< the least that is enough; at most `bytes`
    Bytes largest;    ///< preferred largest extent, as far as that costs nothing
    std::chrono::milliseconds wait{0};
    std::stop_token stop{};            ///< calls it off
    std::chrono::nanoseconds taken{};  ///< of the broker's timeout, by earlier requests of the same call
    bool is_probe = false;             ///< a refusal is no denial: the caller asks again
  };
  /// Obtains extents, not mapped yet, of `min_bytes` to `bytes` in total.
  /// Errors  as Slice::grow; kCancelled.   Blocks.
  virtual Result<std::vector<Extent>, GrowError> obtain(const Request& request) = 0;

  /// Maps `extents` one after the other from `at` on, readable and writable. All or nothing. An extent may be
  /// mapped elsewhere, too.
  virtual Result<void> map(Address at, std::span<const Extent> extents) = 0;
  /// Unmaps [at, at + bytes), which begins and ends with extents and has no holes. All or nothing.
  virtual Result<void> unmap(Address at, Bytes bytes) = 0;
  /// Returns `extents`, which are not mapped anywhere. If the broker cannot be told now, it is told later.
  virtual void give_back(std::vector<Extent> extents) = 0;

  /// Names [at, at + bytes), which is mapped, for other processes.   Errors  as Allocator::export_handle.
  using HandleBytes = std::array<char, 64>;
  virtual Result<HandleBytes> export_range(Address at, Bytes bytes, const ExportOptions& options) = 0;

  /// From now on the device with `ordinal` in this process may use what is mapped, too.
  /// Errors  the driver's: they are no peers.   Threads  under the allocator's lock.
  virtual Result<void> allow(int ordinal) = 0;

  /// Shows people how much is in use.
  virtual void publish(Bytes in_use) = 0;
};

/// The allocator's view of streams: the stream that a handle names, marks in its work, and whether a mark has
/// been reached. A handle is passed only during a call of the program that names it, because the stream may
/// end right after. The legacy default stream never ends.
/// Threads  under the allocator's lock, except id_of, renew and wait (any), and wait_for_contexts.
class StreamPort {
 public:
  /// The end of the work given to a stream until the mark was set. Zero: none.
  enum class Mark : std::uint64_t {};
  /// Distinguishes streams that had the same handle one after the other. Zero: this driver has no ids.
  enum class Id : std::uint64_t {};
  /// What is known of a mark. Lost: a capture has taken it, so it tells nothing of the stream's work.
  enum class Progress { kPending, kReached, kLost };

  virtual ~StreamPort() = default;

  /// Whether the program's streams with an id are announced before they end (Engine::release_stream), so that
  /// their handles can be used by any call until then. A stream whose context has ended need not be.
  virtual bool announces_ends() const { return false; }
  /// The stream that `stream` names now, in the calling thread. The thread may have any context, or none.
  virtual Result<Id> meet(StreamHandle stream) = 0;
  /// Whether the legacy default stream is the one of the calling thread's context.
  virtual bool is_default_current() const { return true; }
  /// Sets a mark behind all work given to `stream` so far. A stream whose own context is gone has no work, so
  /// its mark is reached. Errors tell nothing about the work.
  virtual Result<Mark> mark(StreamHandle stream) = 0;
  /// As mark(), in a call of the program that has met `stream`: its context is there, and need not be
  /// entered.
  virtual Result<Mark> mark_met(StreamHandle stream) { return mark(stream); }
  /// The stream's id, by one call of the driver. Nothing: only meet() can tell, as of a default stream.
  virtual std::optional<Id> id_of(StreamHandle stream) = 0;
  /// Moves `mark`, which was set on the stream, behind all work given to the stream so far. It enters no
  /// context. False: it could not be set, and `mark` is of no use until it is renewed.
  /// Threads  any; of one mark one at a time, and no other call names the mark meanwhile.
  virtual bool renew(Mark mark, StreamHandle stream) = 0;
  /// Whether the device has reached `mark`. Pending, too, if that cannot be asked now (a graph is being
  /// captured).
  virtual Progress ask(Mark mark) = 0;
  /// Work given to `stream` from now on begins after `mark`.
  virtual Result<void> order(StreamHandle stream, Mark mark) = 0;
  /// Blocks until the device has reached `mark`.
  virtual Result<void> wait(Mark mark) = 0;
  /// `mark` is not needed any more.
  virtual void drop(Mark mark) = 0;
  /// `stream`, which was met as `id`, is passed on no more.
  virtual void forget(StreamHandle stream, Id id) = 0;
  /// Blocks until all work is done of every context in which a stream was met, that of ended streams too.
  /// Errors   kFailedPrecondition: a graph is being captured, which this may invalidate.
  /// Threads  beside wait and drop only.
  virtual Result<void> wait_for_contexts() = 0;
};

}  // namespace gpumem::allocator
