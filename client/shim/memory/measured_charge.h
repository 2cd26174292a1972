#pragma once
#include <cuda.h>

#include "base/mutex.h"
#include "client/shim/memory/device_memory.h"

namespace gpumem::shim {

/// The charge for memory that the driver keeps in whole chunks and hands out in parts: a pool's, or that of a
/// device's graphs. Before a part is handed out, it is charged as far as no chunk can be there for it;
/// afterwards what the driver says that it keeps.
/// Threads  any.
class MeasuredCharge {
 public:
  explicit MeasuredCharge(DeviceMemory& memory) : memory_(memory) {}

  DeviceMemory& memory() const { return memory_; }

  /// Charges what `more` bytes need beside the `used` ones. settle() follows, whatever becomes of them.
  /// Errors  OUT_OF_MEMORY: as DeviceMemory::charge_outside; then no settle() follows.
  CUresult reserve(const char* call, Bytes used, Bytes more);
  /// Charges what `measure` answers: all that the driver keeps. Where that passes a limit, because the driver
  /// rounds, the limit is charged. `reserved`  by reserve(), and in use or given up by now.
  template <class Measure>
  void settle(Bytes reserved, const Measure& measure) {
    const MutexLock lock(settling_);
    unreserve(reserved);
    change_to(measure());
  }

 private:
  void unreserve(Bytes reserved);
  void change_to(Bytes kept) GPUMEM_REQUIRES(settling_);

  DeviceMemory& memory_;
  Mutex settling_;  ///< held for the driver's and the broker's answers: older figures do not overtake newer
  Mutex mutex_;
  Bytes charged_ GPUMEM_GUARDED_BY(mutex_);
  Bytes reserved_ GPUMEM_GUARDED_BY(mutex_);  ///< for calls under way
  Bytes asked_ GPUMEM_GUARDED_BY(mutex_);     ///< about to be charged for them
};

}  // namespace gpumem::shim
