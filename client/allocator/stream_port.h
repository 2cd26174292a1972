#pragma once
#include <cstdint>

#include "gpumem/options.h"
#include "gpumem/result.h"

namespace gpumem::allocator {

/// The allocator's view of streams: the stream that a handle names, marks in its work, and whether a mark has
/// been reached. A handle is passed only during a call of the program that names it, because the stream may
/// end right after. The legacy default stream never ends.
/// Threads  under the allocator's lock, except wait (any) and wait_for_contexts.
class StreamPort {
 public:
  /// The end of the work given to a stream until the mark was set. Zero: none.
  enum class Mark : std::uint64_t {};
  /// Distinguishes streams that had the same handle one after the other.
  enum class Id : std::uint64_t {};

  virtual ~StreamPort() = default;

  /// The stream that `stream` names now, in the calling thread. The thread may have any context, or none.
  virtual Result<Id> meet(StreamHandle stream) = 0;
  /// Sets a mark behind all work given to `stream` so far. A stream whose own context is gone has no work, so
  /// its mark is reached. Errors tell nothing about the work.
  virtual Result<Mark> mark(StreamHandle stream) = 0;
  /// Whether the device has reached `mark`. False if that cannot be asked now (a graph is being captured).
  virtual bool reached(Mark mark) = 0;
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
