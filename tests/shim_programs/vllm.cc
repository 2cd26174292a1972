// How vLLM sizes itself, and its sleep mode. Its extension links libcuda.so.1 (csrc/cumem_allocator.cpp).
#include <vector>

#include "tests/shim_programs/program.h"

namespace gpumem::shim_programs {
namespace {

using Handle = CUmemGenericAllocationHandle;

/// vllm/utils/mem_utils.py: MemorySnapshot.
struct Snapshot {
  std::size_t free = 0;
  std::size_t total = 0;
  static Snapshot take() {
    Snapshot taken;
    OK(cuMemGetInfo(&taken.free, &taken.total));
    return taken;
  }
};

/// What a call of my_malloc holds.
struct Held {
  CUdeviceptr at = 0;
  std::uint64_t size = 0;
  Handle handle = 0;
};

// csrc/cumem_allocator.cpp: create_and_map.
void create_and_map(Held& held) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  wanted.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;
  int rdma = 0;
  OK(cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0));
  if (rdma != 0) wanted.allocFlags.gpuDirectRDMACapable = 1;
  OK(cuMemCreate(&held.handle, held.size, &wanted, 0));
  OK(cuMemMap(held.at, held.size, 0, held.handle, 0));
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemSetAccess(held.at, held.size, &access, 1));
}

// my_malloc of that file. One handle of the whole size.
Held allocate(std::uint64_t bytes) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  std::size_t unit = 0;
  OK(cuMemGetAllocationGranularity(&unit, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  Held held;
  held.size = (bytes + unit - 1) / unit * unit;
  OK(cuMemAddressReserve(&held.at, held.size, 0, 0, 0));
  create_and_map(held);
  return held;
}

// unmap_and_release and my_free of that file. The addresses stay reserved while it sleeps.
void sleep(const Held& held) {
  OK(cuMemUnmap(held.at, held.size));
  OK(cuMemRelease(held.handle));
}
void free_all(const Held& held) {
  OK(cuCtxSynchronize());
  sleep(held);
  OK(cuMemAddressFree(held.at, held.size));
}

struct Engine {
  Held weights, kv_cache;
  std::vector<unsigned char> weights_on_host;

  // vllm/v1/worker/gpu_worker.py: init_device, determine_available_memory.
  Engine() {
    start();
    const Snapshot first = Snapshot::take();
    const auto requested = static_cast<std::uint64_t>(static_cast<double>(first.total) * 0.9);
    MUST(first.free >= requested);  // "Free memory on device ... is less than desired"
    weights = allocate(6 * kGiB);
    for (std::uint64_t at = 0; at < weights.size; at += kGiB)
      OK(cuMemsetD8(weights.at + at, static_cast<unsigned char>(1 + at / kGiB), 4096));
    tell_test();
    await_test();  // other programs give memory back meanwhile
    const Snapshot profiled = Snapshot::take();
    MUST(profiled.total == first.total);
    MUST(first.free > profiled.free);  // "Error in memory profiling"
    const std::uint64_t used = first.free - profiled.free;
    MUST(used == weights.size);
    kv_cache = allocate(requested - used);
  }
  // vllm/device_allocator/cumem.py: sleep(), level 1. What is to stay goes to the host.
  void sleep() {
    weights_on_host.resize(64 * kMiB);
    OK(cuMemcpyDtoH(weights_on_host.data(), weights.at, weights_on_host.size()));
    shim_programs::sleep(weights);
    shim_programs::sleep(kv_cache);
  }
  void wake_up() {
    create_and_map(weights);
    create_and_map(kv_cache);
    OK(cuMemcpyHtoD(weights.at, weights_on_host.data(), weights_on_host.size()));
    MUST(byte_at(weights.at) == 1);
    OK(cuMemsetD8(kv_cache.at + kv_cache.size - 4096, 1, 4096));
  }
};

}  // namespace

TASK(vllm) {
  Engine engine;
  tell_and_await_test();
  engine.sleep();
  MUST(Snapshot::take().free == Snapshot::take().total);
  tell_and_await_test();
  engine.wake_up();
  MUST(Snapshot::take().free < Snapshot::take().total / 8);
  free_all(engine.weights);
  free_all(engine.kv_cache);
}

}  // namespace gpumem::shim_programs
