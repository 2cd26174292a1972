// RMM's pool behind the functions of peer.h, for gpumem_peers_bench. RMM's headers have the pool. Its CUDA
// runtime is tests/python/stand_ins/cuda_runtime.cc. Alignments, errors and the log come from RMM's library,
// into which a runtime of NVIDIA's is linked that refuses the simulated driver. The pool calls one function
// there that asks the runtime: it is defined here instead.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <rmm/cuda_device.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include "peer.h"

rmm::cuda_device_id rmm::get_current_cuda_device() {
  int device = -1;
  (void)cudaGetDevice(&device);
  return cuda_device_id(device);
}

namespace {

struct Pool {
  explicit Pool(std::size_t initial) : pool(&upstream, initial) {}
  rmm::mr::cuda_memory_resource upstream;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool;
};
Pool& pool_of(void* pool) { return *static_cast<Pool*>(pool); }

/// As rmm::percent_of_free_device_memory.
std::size_t part_of_free(int percent) {
  std::size_t free = 0, total = 0;
  (void)cudaMemGetInfo(&free, &total);
  return rmm::align_down(free * static_cast<std::size_t>(percent) / 100, rmm::CUDA_ALLOCATION_ALIGNMENT);
}

}  // namespace

extern "C" {

void* peer_open(int percent) {
  try {
    return new Pool(percent == 0 ? 0 : part_of_free(percent));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "RMM: %s\n", error.what());
    return nullptr;
  }
}

void peer_close(void* pool) { delete static_cast<Pool*>(pool); }

void* peer_allocate(void* pool, std::size_t bytes, void* stream) {
  try {
    return pool_of(pool).pool.allocate(rmm::cuda_stream_view(static_cast<cudaStream_t>(stream)), bytes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "RMM: %s\n", error.what());
    return nullptr;
  }
}

void peer_deallocate(void* pool, void* block, std::size_t bytes, void* stream) {
  pool_of(pool).pool.deallocate(rmm::cuda_stream_view(static_cast<cudaStream_t>(stream)), block, bytes);
}

std::size_t peer_kept(void* pool) { return pool_of(pool).pool.pool_size(); }

}  // extern "C"
