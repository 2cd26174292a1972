// Calls that allocate, import or bind and are the driver's own: they reach it, and change no figure by
// themselves.
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "tests/shim_programs/program.h"

namespace gpumem::shim_programs {
namespace {

std::size_t free_memory() {
  std::size_t free = 0;
  OK(cuMemGetInfo(&free, nullptr));
  return free;
}

CUmemPoolProps pool_of(CUmemAllocationType type, CUmemAllocationHandleType handles) {
  CUmemPoolProps properties{};
  properties.allocType = type;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.handleTypes = handles;
  return properties;
}

// The simulated driver has none of these. Without a driver they would be answered with another code.
void ask_for_what_the_driver_refuses(CUdeviceptr block) {
  constexpr CUresult kRefused = CUDA_ERROR_NOT_SUPPORTED;
  CUmemGenericAllocationHandle multicast = 0;
  CUmulticastObjectProp object{};
  object.numDevices = 1;
  object.size = 2 * kMiB;
  ANSWERS(kRefused, cuMulticastCreate(&multicast, &object));
  ANSWERS(kRefused, cuMulticastBindMem(1, 0, 1, 0, 2 * kMiB, 0));
  ANSWERS(kRefused, cuMulticastBindAddr(1, 0, block, 2 * kMiB, 0));
  CUarrayMapInfo tile{};
  ANSWERS(kRefused, cuMemMapArrayAsync(&tile, 1, nullptr));
  int descriptor = -1;
  ANSWERS(kRefused, cuMemGetHandleForAddressRange(&descriptor, block, 2 * kMiB,
                                                  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  CUdeviceptr view = 0;
  const CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
  ANSWERS(kRefused, cuExternalMemoryGetMappedBuffer(&view, nullptr, &buffer));
  CUmipmappedArray levels = nullptr;
  const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC array{};
  ANSWERS(kRefused, cuExternalMemoryGetMappedMipmappedArray(&levels, nullptr, &array));
}

#if CUDA_VERSION >= 13000
CUgraph graph_of_nodes(std::uint64_t bytes) {
  CUgraph graph = nullptr;
  OK(cuGraphCreate(&graph, 0));
  CUgraphNodeParams made{}, freed{};
  made.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  made.alloc.poolProps = pool_of(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE);
  made.alloc.bytesize = bytes;
  CUgraphNode alloc = nullptr, free = nullptr;
  OK(cuGraphAddNode(&alloc, graph, nullptr, nullptr, 0, &made));
  MUST(made.alloc.dptr != 0);
  freed.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  freed.free.dptr = made.alloc.dptr;
  OK(cuGraphAddNode(&free, graph, &alloc, nullptr, 1, &freed));
  return graph;
}

void allocate_by_nodes(std::size_t before) {
  const CUgraph graph = graph_of_nodes(6 * kMiB);
  MUST(free_memory() == before);
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuCtxSynchronize());
  MUST(free_memory() == before - 6 * kMiB);
  OK(cuGraphExecDestroy(exec));
  OK(cuDeviceGraphMemTrim(0));
  MUST(free_memory() == before);
}

void name_a_managed_pool(std::size_t before) {
  const CUmemPoolProps properties = pool_of(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_HANDLE_TYPE_NONE);
  CUmemoryPool pool = nullptr;
  OK(cuMemPoolCreate(&pool, &properties));
  CUmemLocation device{};
  device.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_MANAGED, pool));
  MUST(free_memory() == before);
  OK(cuMemPoolDestroy(pool));
}
#endif

void import_a_pool(std::size_t before) {
  constexpr auto kFile = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUmemPoolProps properties = pool_of(CU_MEM_ALLOCATION_TYPE_PINNED, kFile);
  CUmemoryPool pool = nullptr, imported = nullptr;
  OK(cuMemPoolCreate(&pool, &properties));
  CUdeviceptr at = 0, again = 0;
  OK(cuMemAllocFromPoolAsync(&at, 6 * kMiB, pool, nullptr));
  OK(cuCtxSynchronize());
  MUST(free_memory() == before - 6 * kMiB);
  int fd = -1;
  OK(cuMemPoolExportToShareableHandle(&fd, pool, kFile, 0));
  OK(cuMemPoolImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                        kFile, 0));
  ::close(fd);
  CUmemPoolPtrExportData data{};
  OK(cuMemPoolExportPointer(&data, at));
  OK(cuMemPoolImportPointer(&again, imported, &data));
  byte_at(at) = 42;
  MUST(byte_at(again) == 42);
  MUST(free_memory() == before - 6 * kMiB);
  OK(cuMemFree(again));
  OK(cuMemFree(at));
  OK(cuMemPoolDestroy(imported));
  OK(cuMemPoolDestroy(pool));
}

}  // namespace

TASK(forwarded_calls) {
  start();
  CUdeviceptr block = 0;
  OK(cuMemAlloc(&block, 2 * kMiB));
  const std::size_t before = free_memory();
  ask_for_what_the_driver_refuses(block);
  MUST(free_memory() == before);
  import_a_pool(before);
  MUST(free_memory() == before);
#if CUDA_VERSION >= 13000
  allocate_by_nodes(before);
  name_a_managed_pool(before);
  MUST(free_memory() == before);
#endif
  OK(cuMemFree(block));
}

}  // namespace gpumem::shim_programs
