#pragma once
#include <cuda.h>

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

/// Waits for the work that was given to `stream`, of the current context, so far.
CUresult synchronize_stream(CUstream stream);

/// Whether work of `stream` is being captured into a graph. The driver's error otherwise.
CUresult is_capturing(CUstream stream, bool* capturing);

/// The device of `context`, and of the context that `stream` is of, a default stream's being the current one.
CUresult device_of(CUcontext context, CUdevice* device);
CUresult device_of(CUstream stream, CUdevice* device);

/// Whether the driver knows the device.
bool is_device(CUdevice device);

/// Whether the primary context of `device` is there. False if the driver does not tell.
bool is_primary_active(CUdevice device);

}  // namespace gpumem::shim
