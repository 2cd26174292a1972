// Memory in the order of streams. What is captured into a graph is the driver's own.
#include "client/shim/calls.h"
#include "client/shim/calls/charged.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuMemAllocAsync)> real_alloc_async("cuMemAllocAsync");
constinit RealCall<decltype(::cuMemAllocFromPoolAsync)> real_alloc_from_pool("cuMemAllocFromPoolAsync");
constinit RealCall<decltype(::cuMemFreeAsync)> real_free_async("cuMemFreeAsync");
constinit RealCall<decltype(::cuDeviceGetMemPool)> real_current_pool("cuDeviceGetMemPool");

/// The stream that a program names by null in the calls for per-thread default streams.
CUstream per_thread(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

CUresult allocate_in(const std::shared_ptr<Pool>& pool, const char* call, std::size_t size, CUstream stream,
                     CUdeviceptr* out) {
  DeviceMemory& memory = pool->memory();
  if (!pool->use({size})) {
    const std::string why = "the pool's own size would be passed";
    return memory.refuse(call, {size}, GrowError({Code::kResourceExhausted, why}));
  }
  CUdeviceptr at = 0;
  const CUresult result = memory.allocate_in_order(call, {size}, stream, &at);
  if (result != CUDA_SUCCESS) {
    pool->free({size});
    return result;
  }
  Process::current().blocks().add({.at = at, .bytes = {size}, .memory = &memory, .pool = pool});
  *out = at;
  return CUDA_SUCCESS;
}

/// Allocates from a pool that is the driver's own: charged, if it is known.
template <class Forward>
CUresult allocate_of_driver(const char* call, CUmemoryPool handle, CUdeviceptr* out, std::size_t size,
                            CUstream stream, const Forward& forward) {
  DriverPools& pools = Process::current().driver_pools();
  auto pool = pools.find(handle);
  if (!pool) return forward();
  const CUresult result =
      pool->allocate(call, {size}, out, forward, [&] { return real_free_async(*out, stream); });
  if (result == CUDA_SUCCESS) pools.add_block(*out, std::move(pool), {size});
  return result;
}

/// As is_capturing(). While the process captures nothing, the driver is asked about a default stream only,
/// which needs a context.
CUresult ask_whether_capturing(CUstream stream, bool* capturing) {
  *capturing = false;
  if (is_made(stream) && !Process::current().captures().any()) return CUDA_SUCCESS;
  return is_capturing(stream, capturing);
}

/// Allocates from the pool that `find` answers; `forward` where that is none of the slice's.
template <class Find, class Forward>
CUresult allocate_async(const char* call, CUdeviceptr* out, std::size_t size, CUstream stream,
                        const Find& find, const Forward& forward) {
  return guarded([&] {
    if (!Process::current().is_brokered() || out == nullptr || size == 0) return forward();
    bool capturing = false;
    const CUresult asked = ask_whether_capturing(stream, &capturing);
    if (asked != CUDA_SUCCESS) return asked;
    if (capturing) return forward();
    const FoundPool found = find();
    if (found.result != CUDA_SUCCESS) return found.result;
    if (!found.pool) return allocate_of_driver(call, found.handle, out, size, stream, forward);
    return or_of_driver(allocate_in(found.pool, call, size, stream, out), found.pool->memory(), forward);
  });
}

CUresult allocate_from_current(CUdeviceptr* out, std::size_t size, CUstream stream) {
  const auto find = [&]() -> FoundPool {
    if (CUmemoryPool const known = CurrentPool::find(stream); known != nullptr) return find_pool(known);
    const std::uint64_t asked = CurrentPool::now();
    CUdevice device = -1;
    CUmemoryPool current = nullptr;
    if (device_of(stream, &device) != CUDA_SUCCESS) return {};
    if (real_current_pool(&current, device) != CUDA_SUCCESS) return {};
    if (is_made(stream)) CurrentPool::remember(stream, current, asked);
    return find_pool(current);
  };
  return allocate_async("cuMemAllocAsync", out, size, stream, find,
                        [&] { return real_alloc_async(out, size, stream); });
}

CUresult allocate_from(CUmemoryPool pool, CUdeviceptr* out, std::size_t size, CUstream stream) {
  return allocate_async(
      "cuMemAllocFromPoolAsync", out, size, stream, [&] { return find_pool(pool); },
      [&] { return real_alloc_from_pool(out, size, pool, stream); });
}

CUresult free_in_order(CUdeviceptr address, CUstream stream) {
  return guarded([&] {
    Process& process = Process::current();
    if (!process.is_brokered() || address == 0) return real_free_async(address, stream);
    bool capturing = false;
    const CUresult asked = ask_whether_capturing(stream, &capturing);
    if (asked != CUDA_SUCCESS) return asked;
    if (capturing) return real_free_async(address, stream);
    const auto block = process.blocks().take(address);
    if (!block) {
      if (process.memory_at(address) != nullptr) return CUDA_ERROR_INVALID_VALUE;
      return free_of_driver(address, [&] { return real_free_async(address, stream); });
    }
    process.exports().end(*block);
    const CUresult freed = block->memory->free_in_order(*block, stream);
    if (freed != CUDA_SUCCESS) process.blocks().put_back(*block);
    return freed;
  });
}

}  // namespace

CUresult calls::cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate_from_current(dptr, bytesize, hStream);
}
CUresult calls::cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate_from_current(dptr, bytesize, per_thread(hStream));
}

CUresult calls::cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                        CUstream hStream) {
  return allocate_from(pool, dptr, bytesize, hStream);
}
CUresult calls::cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                             CUstream hStream) {
  return allocate_from(pool, dptr, bytesize, per_thread(hStream));
}

CUresult calls::cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) { return free_in_order(dptr, hStream); }
CUresult calls::cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return free_in_order(dptr, per_thread(hStream));
}

}  // namespace gpumem::shim
