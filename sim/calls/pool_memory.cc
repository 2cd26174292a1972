// Stream-ordered memory: allocated and freed in the order of streams.
#include <cuda.h>

#include "calls.h"
#include "sim/calls/find_pool.h"

namespace gpumem::sim {
namespace {

/// The stream that `named` names; only a default one needs a current context. What is allocated and freed in
/// a capture would be the graph's.
CUresult queue_of(Call& driver, CUstream named, StreamRef* out) {
  *out = driver->streams.find(number(named));
  return *out != nullptr ? driver->captures.check_no_capture(**out) : driver->queue_uncaptured(named, out);
}

CUresult allocate(Call& driver, Pool& pool, size_t size, CUstream named, CUdeviceptr* out) {
  if (out == nullptr || pool.is_imported) return CUDA_ERROR_INVALID_VALUE;
  StreamRef stream;
  if (const CUresult result = queue_of(driver, named, &stream); result != CUDA_SUCCESS) return result;
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
