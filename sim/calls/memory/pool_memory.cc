// Stream-ordered memory: allocated and freed in the order of streams.
#include <cuda.h>

#include <utility>

#include "calls.h"
#include "sim/calls/find_object.h"
#include "sim/calls/graphs/node_actions.h"

namespace gpumem::sim {
namespace {

/// The stream that `named` names, for work; only a default one needs a current context.
CUresult queue_of(Call& driver, CUstream named, StreamRef* out) {
  *out = driver->streams.find(number(named));
  return *out != nullptr ? driver->captures.check_use(**out) : driver->queue(named, out);
}

/// An allocation in a capture belongs to the graph and has the pool's properties.
CUresult capture(Call& driver, const Pool& pool, size_t size, const Stream& stream, CUdeviceptr* out) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (pool.is_managed) return CUDA_ERROR_NOT_SUPPORTED;  // nodes allocate pinned memory
  GraphAllocation like{.wanted = size, .device = pool.device};
  like.owner = driver->captures.find(stream)->graph->number;
  like.properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  like.properties.location = pool.location;
  for (std::uint32_t device = 0; device < pool.access.size(); ++device) {
    const auto flags = static_cast<CUmemAccess_flags>(pool.access[device]);
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    like.access.push_back({device, flags});
    if (device == pool.device) continue;
    like.described.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, driver->ordinal(device)}, flags});
  }
  AllocateAction action;
  const CUresult result = driver->graph_memory.add(std::move(like), &action.allocation);
  if (result != CUDA_SUCCESS) return result;
  *out = action.allocation->address;
  driver->captures.add(stream, std::move(action));
  return CUDA_SUCCESS;
}

CUresult capture_free(Call& driver, CUdeviceptr address, const Stream& stream) {
  Action action;
  const CUresult result = read_free(driver, *driver->captures.find(stream)->graph, address, &action);
  if (result == CUDA_SUCCESS) driver->captures.add(stream, std::move(action));
  return result;
}

CUresult allocate(Call& driver, Pool& pool, size_t size, CUstream named, CUdeviceptr* out) {
  if (out == nullptr || pool.is_imported) return CUDA_ERROR_INVALID_VALUE;
  StreamRef stream;
  if (const CUresult result = queue_of(driver, named, &stream); result != CUDA_SUCCESS) return result;
  if (driver->captures.find(*stream) != nullptr) return capture(driver, pool, size, *stream, out);
  return driver->pools.allocate(pool, size, stream, out);
}

}  // namespace

CUresult api::cuMemAllocAsync(CUdeviceptr* out, size_t size, CUstream named) {
  Call driver;
  if (!driver) return driver.error();
  StreamRef stream;
  if (const CUresult result = queue_of(driver, named, &stream); result != CUDA_SUCCESS) return result;
  const Context* const context = driver->contexts.find(handle<CUcontext>(options_of(*stream).context));
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Pool& pool = driver->pools.current_of({CU_MEM_LOCATION_TYPE_DEVICE, context->ordinal});
  return allocate(driver, pool, size, named, out);
}

CUresult api::cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t size, CUmemoryPool named, CUstream stream) {
  return with_pool(named,
                   [&](Call& driver, Pool& pool) { return allocate(driver, pool, size, stream, out); });
}

CUresult api::cuMemFreeAsync(CUdeviceptr address, CUstream named) {
  Call driver;
  if (!driver) return driver.error();
  StreamRef stream;
  if (const CUresult result = queue_of(driver, named, &stream); result != CUDA_SUCCESS) return result;
  if (driver->captures.find(*stream) != nullptr) return capture_free(driver, address, *stream);
  if (driver->graph_memory.find(address) != nullptr)
    return driver->graph_memory.free(address, driver->streams.submit_short(stream, [] {}));
  const Pools::Found found = driver->pools.find_block(address);
  if (found.pool == nullptr) return driver->pools.free_allocation(address, stream);
  if (found.start != address) return CUDA_ERROR_INVALID_VALUE;
  const Ticket freed = driver->streams.submit_short(stream, [] {});
  if (freed.is_done()) return driver->pools.free(address, freed);
  const CUresult result = driver->pools.free(address, freed);
  // A pool that is destroyed ends with its last free, whether or not anybody synchronises then.
  driver->streams.submit(stream, [] { Call()->pools.end_what_is_over(); });
  return result;
}

}  // namespace gpumem::sim
