#pragma once
#include <cstdint>

#include "gpumem/options.h"
#include "gpumem/result.h"

namespace gpumem::allocator {

/// What the allocator needs to know about streams: marks in their work, and whether these have been reached.
/// Threads  under the allocator's lock, except wait (any).
class StreamPort {
 public:
  /// The end of the work given to a stream until the mark was set. Zero: none.
  enum class Mark : std::uint64_t {};

  virtual ~StreamPort() = default;

  /// Registers a stream at its first use, in the thread that uses it.
  virtual Result<void> meet(StreamHandle stream) = 0;
  /// Sets a mark behind all work given to `stream` so far. A stream whose context is gone has no work, so its
  /// mark is reached.
  virtual Result<Mark> mark(StreamHandle stream) = 0;
  /// Whether the device has reached `mark`. False if that cannot be asked now (a graph is being captured).
  virtual bool reached(Mark mark) = 0;
  /// Work given to `stream` from now on begins after `mark`.
  virtual Result<void> order(StreamHandle stream, Mark mark) = 0;
  /// Blocks until the device has reached `mark`.
  virtual Result<void> wait(Mark mark) = 0;
  /// `mark` is not needed any more.
  virtual void drop(Mark mark) = 0;
  /// `stream` is about to be destroyed. Its marks stay valid.
  virtual void forget(StreamHandle stream) = 0;
};

}  // namespace gpumem::allocator
