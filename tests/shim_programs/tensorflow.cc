// How TensorFlow 2.20 takes a GPU. It opens libcuda.so.1 and finds each call by its exported name
// (openxla/xla: xla/tsl/cuda/cuda_stub.cc).
#include "tests/shim_programs/bfc.h"
#include "tests/shim_programs/program.h"

namespace gpumem::shim_programs {
namespace {

constexpr CUresult kOutOfMemory = CUDA_ERROR_OUT_OF_MEMORY;

// xla/stream_executor/cuda/cuda_executor.cc, cuda_context.cc: the primary context of each device.
void make_device() {
  int count = 0, pools = 0;
  CUdevice device = -1;
  CUcontext context = nullptr;
  OK(BY_NAME(cuInit)(0));
  OK(BY_NAME(cuDeviceGetCount)(&count));
  MUST(count == 1);
  OK(BY_NAME(cuDeviceGet)(&device, 0));
  unsigned flags = 0;
  int active = 1;
  OK(BY_NAME(cuDevicePrimaryCtxGetState)(device, &flags, &active));
  MUST(active == 0);
  OK(BY_NAME(cuDevicePrimaryCtxSetFlags)(device, CU_CTX_SCHED_AUTO));
  OK(BY_NAME(cuDevicePrimaryCtxRetain)(&context, device));
  OK(BY_NAME(cuCtxSetCurrent)(context));
  OK(BY_NAME(cuDeviceGetAttribute)(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device));
  MUST(pools == 1);
}

// tensorflow/core/common_runtime/gpu/gpu_device.cc: MinSystemMemory.
std::uint64_t reserve_of(std::uint64_t free) {
  if (free < 2 * kGiB) return 225 * kMiB;
  int major = 0;
  OK(BY_NAME(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  if (major <= 6) return 500 * kMiB;
  if (major == 7) return 1050 * kMiB;
  return major == 8 ? 1536 * kMiB : 1800 * kMiB;
}

// gpu_device.cc: SingleVirtualDeviceMemoryLimit.
std::uint64_t memory_limit() {
  std::size_t free = 0, total = 0;
  OK(BY_NAME(cuMemGetInfo)(&free, &total));
  MUST(free > 0 && free <= total);
  std::size_t of_device = 0;
  OK(BY_NAME(cuDeviceTotalMem)(&of_device, 0));
  MUST(of_device == total);
  const std::uint64_t reserve = reserve_of(free);
  return free > reserve ? free - reserve : free;
}

// xla/stream_executor/cuda/cuda_executor.cc: DeviceAllocate.
CUdeviceptr allocate_region(std::uint64_t bytes) {
  CUdeviceptr at = 0;
  const CUresult result = BY_NAME(cuMemAlloc)(&at, bytes);
  MUST(result == CUDA_SUCCESS || result == kOutOfMemory);
  return result == CUDA_SUCCESS ? at : 0;
}

// XLA's queries about addresses that it was given. Also checks that they are memory from end to end.
void use(const Bfc::Region& region) {
  std::size_t size = 0;
  OK(BY_NAME(cuMemGetAddressRange)(nullptr, &size, region.at + region.bytes / 2));
  MUST(size == region.bytes);
  unsigned type = 0;
  OK(BY_NAME(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, region.at));
  MUST(type == CU_MEMORYTYPE_DEVICE);
  OK(BY_NAME(cuMemsetD8)(region.at, 7, 256));
  OK(BY_NAME(cuMemsetD8)(region.at + region.bytes - 256, 7, 256));
}

}  // namespace

// One region of all that it may have, at the first allocation. It is never freed.
TASK(tensorflow) {
  make_device();
  const std::uint64_t limit = memory_limit();
  Bfc memory(allocate_region, limit, false);
  MUST(memory.extend(256));
  MUST(memory.requests() == 1 && memory.taken() == limit / 256 * 256);
  use(memory.regions().front());
  MUST(!memory.extend(256));
}

// As above, but stays until the test ends it.
TASK(tensorflow_holds) {
  make_device();
  Bfc memory(allocate_region, memory_limit(), false);
  MUST(memory.extend(256) && memory.requests() == 1);
  use(memory.regions().front());
  tell_and_await_test();
  use(memory.regions().front());
}

// TF_FORCE_GPU_ALLOW_GROWTH: regions of 2 MiB, 4 MiB and so on, up to the limit.
TASK(tensorflow_growth) {
  make_device();
  const std::uint64_t limit = memory_limit();
  Bfc memory(allocate_region, limit, true);
  while (memory.extend(kMiB)) use(memory.regions().back());
  MUST(limit - memory.taken() < kMiB);
  MUST(memory.requests() == static_cast<int>(memory.regions().size()));
  // Garbage collection: what lies idle is freed, and taken anew (TF_ENABLE_GPU_GARBAGE_COLLECTION).
  const Bfc::Region last = memory.regions().back();
  OK(BY_NAME(cuMemFree)(last.at));
  MUST(allocate_region(last.bytes) != 0);
}

// The memory is there, but others have it: the region shrinks by a tenth until it fits.
TASK(tensorflow_backpedals) {
  make_device();
  Bfc memory(allocate_region, memory_limit(), false);
  MUST(memory.extend(kMiB));
  MUST(memory.requests() > 40);
  MUST(memory.taken() > 85 * kMiB && memory.taken() <= 100 * kMiB);
  use(memory.regions().front());
}

// TF_GPU_ALLOCATOR=cuda_malloc_async, xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc. There a
// failed call of a pool is LOG(FATAL).
TASK(tensorflow_async) {
  make_device();
  const std::uint64_t limit = memory_limit();
  CUmemoryPool pool = nullptr;
  OK(BY_NAME(cuDeviceGetDefaultMemPool)(&pool, 0));
  cuuint64_t threshold = limit;
  OK(BY_NAME(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  int off = 0;
  OK(BY_NAME(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
  OK(BY_NAME(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &off));
  CUstream stream = nullptr;
  OK(BY_NAME(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  // TensorFlow takes the whole pool once, so that the driver keeps it.
  CUdeviceptr all = 0;
  OK(BY_NAME(cuMemAllocFromPoolAsync)(&all, limit, pool, stream));
  OK(BY_NAME(cuMemFreeAsync)(all, stream));
  CUdeviceptr tensors[8] = {};
  for (CUdeviceptr& tensor : tensors) {
    OK(BY_NAME(cuMemAllocFromPoolAsync)(&tensor, limit / 8, pool, stream));
    OK(BY_NAME(cuMemsetD8Async)(tensor, 3, 4096, stream));
  }
  cuuint64_t used = 0, reserved = 0;
  OK(BY_NAME(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  OK(BY_NAME(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  MUST(used == limit / 8 * 8 && reserved >= used);
  // Out of memory: it waits for its stream and tries once more.
  CUdeviceptr more = 0;
  ANSWERS(kOutOfMemory, BY_NAME(cuMemAllocFromPoolAsync)(&more, 4 * kGiB, pool, stream));
  OK(BY_NAME(cuMemFreeAsync)(tensors[0], stream));
  OK(BY_NAME(cuMemFreeAsync)(tensors[1], stream));
  OK(BY_NAME(cuStreamSynchronize)(stream));
  OK(BY_NAME(cuMemAllocFromPoolAsync)(&more, limit / 4, pool, stream));
  OK(BY_NAME(cuMemFreeAsync)(more, stream));
  for (std::size_t i = 2; i < 8; ++i) OK(BY_NAME(cuMemFreeAsync)(tensors[i], stream));
  OK(BY_NAME(cuStreamSynchronize)(stream));
  OK(BY_NAME(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  MUST(used == 0);
}

}  // namespace gpumem::shim_programs
