#pragma once
#include <cuda.h>

#include <map>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "client/shim/memory/device_memory.h"

namespace gpumem::shim {

/// Memory that the driver itself allocated for the program, and that the broker was told of.
/// Threads  any.
class Outside {
 public:
  struct Piece {
    DeviceMemory* memory = nullptr;
    Bytes bytes;
    CUcontext context = nullptr;  ///< it ends with this one
  };
  void add(CUdeviceptr at, const Piece& piece);
  /// The driver has freed what began at `at`: nothing happens if that was not told of.
  void freed(CUdeviceptr at);
  void ended(CUcontext context);

 private:
  Mutex mutex_;
  std::map<CUdeviceptr, Piece> pieces_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::shim
