// How JAX 0.11 takes a GPU. XLA opens libcuda.so.1 and finds each call by its exported name.
#include "tests/shim_programs/bfc.h"
#include "tests/shim_programs/program.h"

#define CU(call) BY_NAME(call)

namespace gpumem::shim_programs {
namespace {

using Handle = CUmemGenericAllocationHandle;

void make_device() {
  CUcontext context = nullptr;
  OK(CU(cuInit)(0));
  OK(CU(cuDevicePrimaryCtxSetFlags)(0, CU_CTX_SCHED_AUTO));
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(CU(cuCtxSetCurrent)(context));
}

// openxla/xla: xla/pjrt/gpu/gpu_helpers.cc, CreateBFCAllocator: of total, whatever is free.
std::uint64_t fraction_of_total(double fraction) {
  std::size_t free = 0, total = 0;
  OK(CU(cuMemGetInfo)(&free, &total));
  return static_cast<std::uint64_t>(static_cast<double>(total) * fraction);
}

CUdeviceptr allocate_region(std::uint64_t bytes) {
  CUdeviceptr at = 0;
  const CUresult result = CU(cuMemAlloc)(&at, bytes);
  MUST(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
  return at;
}

constexpr unsigned kPosix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp properties(unsigned handle_types) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  wanted.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
  int rdma = 0;
  OK(CU(cuDeviceGetAttribute)(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0));
  wanted.allocFlags.gpuDirectRDMACapable = rdma != 0 ? 1 : 0;
  return wanted;
}

/// xla/stream_executor/cuda/cuda_device_allocator.cc: which handle types to ask for is tried out.
unsigned probe_handle_types() {
  const CUmemAllocationProp both = properties(kPosix | CU_MEM_HANDLE_TYPE_FABRIC), one = properties(kPosix);
  std::size_t unit = 0;
  OK(CU(cuMemGetAllocationGranularity)(&unit, &one, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  Handle handle = 0;
  const CUresult probed = CU(cuMemCreate)(&handle, unit, &both, 0);
  if (probed == CUDA_SUCCESS) OK(CU(cuMemRelease)(handle));
  MUST(probed == CUDA_SUCCESS || probed == CUDA_ERROR_NOT_PERMITTED || probed == CUDA_ERROR_NOT_SUPPORTED);
  return probed == CUDA_SUCCESS ? kPosix | CU_MEM_HANDLE_TYPE_FABRIC : kPosix;
}

/// Allocate and Deallocate of that file. ncclMemAlloc does as much (src/allocator.cc).
CUdeviceptr allocate_mapped(std::uint64_t* bytes, unsigned handle_types) {
  const CUmemAllocationProp wanted = properties(handle_types);
  std::size_t unit = 0;
  OK(CU(cuMemGetAllocationGranularity)(&unit, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  *bytes = *bytes / unit * unit;
  Handle handle = 0;
  CUdeviceptr at = 0;
  OK(CU(cuMemCreate)(&handle, *bytes, &wanted, 0));
  OK(CU(cuMemAddressReserve)(&at, *bytes, unit, 0, 0));
  OK(CU(cuMemMap)(at, *bytes, 0, handle, 0));
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(CU(cuMemSetAccess)(at, *bytes, &access, 1));
  OK(CU(cuMemRelease)(handle));
  return at;
}
void free_mapped(CUdeviceptr at, std::uint64_t bytes) {
  OK(CU(cuCtxSynchronize)());
  Handle handle = 0;
  OK(CU(cuMemRetainAllocationHandle)(&handle, reinterpret_cast<void*>(at)));
  OK(CU(cuMemUnmap)(at, bytes));
  OK(CU(cuMemRelease)(handle));
  OK(CU(cuMemAddressFree)(at, bytes));
}

}  // namespace

// XLA_PYTHON_CLIENT_MEM_FRACTION's 0.75 of the total at the start, and collectives' memory from the rest.
TASK(jax) {
  make_device();
  const std::uint64_t limit = fraction_of_total(0.75);
  Bfc memory(allocate_region, limit, false);
  MUST(memory.extend(256) && memory.requests() == 1);
  std::uint64_t rest = fraction_of_total(0.25);
  const unsigned types = probe_handle_types();
  const CUdeviceptr at = allocate_mapped(&rest, types);
  OK(CU(cuMemsetD8)(at + rest - kMiB, 6, kMiB));
  free_mapped(at, rest);
}

// XLA_PYTHON_CLIENT_PREALLOCATE=false.
TASK(jax_growth) {
  make_device();
  const std::uint64_t limit = fraction_of_total(0.75);
  Bfc memory(allocate_region, limit, true);
  while (memory.extend(3 * kMiB)) OK(CU(cuMemsetD8)(memory.regions().back().at, 1, 256));
  MUST(limit - memory.taken() < 3 * kMiB);
}

// XLA_PYTHON_CLIENT_ALLOCATOR=platform: a call of the driver for each buffer.
TASK(jax_platform) {
  make_device();
  std::size_t before = 0, after = 0;
  OK(CU(cuMemGetInfo)(&before, nullptr));
  for (int round = 0; round < 20; ++round) {
    CUdeviceptr buffers[10] = {};
    for (std::size_t i = 0; i < 10; ++i) OK(CU(cuMemAlloc)(&buffers[i], (i + 1) * (i + 1) * 100'000));
    for (const CUdeviceptr buffer : buffers) OK(CU(cuMemFree)(buffer));
  }
  OK(CU(cuMemGetInfo)(&after, nullptr));
  MUST(after == before);
}

}  // namespace gpumem::shim_programs
