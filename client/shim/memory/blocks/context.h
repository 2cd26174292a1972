#pragma once

#include <cuda.h>
#include <atomic>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace gpumem::shim {

/// The calling thread's current context, and its device.
struct CurrentContext {
  /// INVALID_CONTEXT: there is none. CONTEXT_IS_DESTROYED: it was, by another thread.
  CUresult result = CUDA_SUCCESS;
  CUcontext context = nullptr;
  CUdevice device = -1;

  static CurrentContext get();
};

/// While one lives, captures of other threads do not forbid this thread's calls, and are not spoilt by them.
class BesideCaptures {
 public:
  BesideCaptures();
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool exchanged_;
};

/// Waits for all work of `context`, whichever is current.
/// Errors  the driver's: of the work, too.
CUresult synchronize(CUcontext context);

/// Makes the copies and fills of `context` that are not asynchronous by name wait until they are done, as
/// those of memory with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS do.   Errors  NOT_SUPPORTED: a driver before
/// CUDA 12.1; else the driver's.
CUresult make_synchronous(CUcontext context);

/// Whether the program has made `stream`: it is none of the default streams.
inline bool is_made(CUstream stream) { return reinterpret_cast<std::uintptr_t>(stream) > 2; }

/// Waits for the work that was given to `stream`, of the current context, so far.
CUresult synchronize_stream(CUstream stream);

/// Whether work of `stream` is being captured into a graph. The driver's error otherwise.
CUresult is_capturing(CUstream stream, bool* capturing);

/// The device of `context`, and of the context that `stream` is of, a default stream's being the current one.
CUresult device_of(CUcontext context, CUdevice* device);
CUresult device_of(CUstream stream, CUdevice* device);

/// Whether `context` has not been destroyed.
bool is_there(CUcontext context);

/// Whether the driver knows the device.
bool is_device(CUdevice device);

/// Whether the primary context of `device` is there. False if the driver does not tell.
bool is_primary_active(CUdevice device);

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
  /// What ends with `from` ends with `to` instead.
  void move(CUcontext from, CUcontext to);
  /// Takes no lock. A thread sees its own captures, and those that began before what it was told of.
  bool any() const { return any_.load(std::memory_order_acquire); }

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
  void note() GPUMEM_REQUIRES(mutex_) { any_.store(!streams_.empty(), std::memory_order_release); }

  mutable Mutex mutex_;
  mutable Condition nobody_waits_;
  mutable unsigned waiting_ GPUMEM_GUARDED_BY(mutex_) = 0;
  std::map<Key, CUcontext> streams_ GPUMEM_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};
};

/// Waits for all work of `context`.
/// Errors  the driver's; one of captures: a graph is being captured, and nothing was waited for.
CUresult synchronize_beside(const Captures& captures, CUcontext context);

}  // namespace gpumem::shim
