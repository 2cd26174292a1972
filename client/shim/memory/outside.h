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
  /// Has `real_call` free what begins at `at`, which may be memory that was not told of. Meanwhile it is not
  /// known here: as soon as it is free, its address may be another's.
  template <class Call>
  CUresult free(CUdeviceptr at, const Call& real_call) {
    const std::optional<Piece> piece = take(at);
    const CUresult freed = real_call();
    if (!piece) return freed;
    if (freed == CUDA_SUCCESS)
      piece->memory->discharge_outside(piece->bytes);
    else
      add(at, *piece);
    return freed;
  }
  void ended(CUcontext context);

 private:
  std::optional<Piece> take(CUdeviceptr at);

  Mutex mutex_;
  std::map<CUdeviceptr, Piece> pieces_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::shim
