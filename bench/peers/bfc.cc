// TensorFlow's allocator (best fit with coalescing) behind the functions of peer.h, for gpumem_peers_bench.
// TensorFlow's package has the headers and the library. As in TensorFlow, memory comes from the device's own
// calls, by tests/python/stand_ins/cuda_runtime.cc. Streams are ignored: TensorFlow allocates for one.
#include <cuda_runtime_api.h>

#include <atomic>
#include <limits>
#include <memory>

#include "peer.h"
#include "xla/tsl/framework/bfc_allocator.h"

namespace {

class DeviceMemory final : public tsl::SubAllocator {
 public:
  explicit DeviceMemory(std::atomic<std::size_t>& kept) : SubAllocator({}, {}), kept_(kept) {}
  void* Alloc(std::size_t, std::size_t bytes, std::size_t* received) override {
    void* block = nullptr;
    if (cudaMalloc(&block, bytes) != cudaSuccess) return nullptr;
    *received = bytes;
    kept_ += bytes;
    return block;
  }
  void Free(void* block, std::size_t bytes) override {
    if (cudaFree(block) == cudaSuccess) kept_ -= bytes;
  }
  bool SupportsCoalescing() const override { return false; }
  tsl::AllocatorMemoryType GetMemoryType() const override { return tsl::AllocatorMemoryType::kDevice; }

 private:
  std::atomic<std::size_t>& kept_;
};

struct Pool {
  explicit Pool(std::size_t limit, bool grows)
      : allocator(std::make_unique<DeviceMemory>(kept), limit, "peer", options(grows)) {}
  static tsl::BFCAllocator::Options options(bool grows) {
    tsl::BFCAllocator::Options chosen;
    chosen.allow_growth = grows;
    return chosen;
  }
  std::atomic<std::size_t> kept{0};
  tsl::BFCAllocator allocator;
};
Pool& pool_of(void* pool) { return *static_cast<Pool*>(pool); }

}  // namespace

extern "C" {

void* peer_open(int percent) {
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return nullptr;
  return new Pool(percent == 0 ? free : free / 100 * static_cast<std::size_t>(percent), percent == 0);
}
void peer_close(void* pool) { delete static_cast<Pool*>(pool); }
void* peer_allocate(void* pool, std::size_t bytes, void*) {
  return pool_of(pool).allocator.AllocateRaw(tsl::Allocator::kAllocatorAlignment, bytes);
}
void peer_deallocate(void* pool, void* block, std::size_t, void*) {
  pool_of(pool).allocator.DeallocateRaw(block);
}
std::size_t peer_kept(void* pool) { return pool_of(pool).kept; }

}  // extern "C"
