#pragma once
#include <cuda.h>

#include <map>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace gpumem::shim {

/// The streams whose work is being captured into graphs. Waiting for all work of a context would spoil them.
/// Threads  any.
class Captures {
 public:
  /// `stream`, of `context`, is about to be captured: nobody begins to wait for work. Whether it was not
  /// captured already.   Blocks  until those who wait are done, but no longer than it takes a call to get
  /// into the driver: once it is there, it spoils nothing.
  bool begins(CUstream stream, CUcontext context);
  /// The capture has ended, well or not, or the stream is about to be destroyed.
  void ended(CUstream stream);
  /// The streams went with their context.
  void ended_with(CUcontext context);
  bool any() const;

  /// Of a thread that is about to wait for work, as long as one lives: no capture begins.
  class Wait {
   public:
    explicit Wait(const Captures& captures);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    /// False: something is being captured.
    bool is_allowed() const { return is_allowed_; }

   private:
    const Captures& captures_;
    const bool is_allowed_;
  };

 private:
  /// The per-thread default stream is another one in each thread.
  using Key = std::pair<CUstream, std::thread::id>;
  static Key key_of(CUstream stream);
  bool begin_to_wait() const;

  mutable Mutex mutex_;
  mutable Condition nobody_waits_;
  mutable unsigned waiting_ GPUMEM_GUARDED_BY(mutex_) = 0;
  std::map<Key, CUcontext> streams_ GPUMEM_GUARDED_BY(mutex_);
};

/// Waits for all work of `context`.
/// Errors  the driver's; one of captures: a graph is being captured, and nothing was waited for.
CUresult synchronize_beside(const Captures& captures, CUcontext context);

}  // namespace gpumem::shim
