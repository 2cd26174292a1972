#include "client/shim/memory/outside/driver_pools.h"

#include <algorithm>
#include <utility>

#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuMemPoolGetAttribute)> real_pool_figure("cuMemPoolGetAttribute");
constinit RealCall<decltype(::cuMemPoolTrimTo)> real_trim_pool("cuMemPoolTrimTo");

}  // namespace

// A destroyed pool tells nothing, and keeps nothing for later.
Bytes DriverPool::kept() const {
  cuuint64_t kept = 0;
  const bool is_told = !is_destroyed_.load() &&
                       real_pool_figure(handle_, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &kept) == CUDA_SUCCESS;
  return is_told ? std::max(Bytes{kept}, used()) : used();
}

void DriverPool::settle(Bytes reserved) {
  charge_.settle(reserved, [this] { return kept(); });
}

void DriverPool::trim() {
  charge_.settle({}, [this] {
    if (!is_destroyed_.load()) (void)real_trim_pool(handle_, 0);
    return kept();
  });
}

void DriverPool::set_destroyed(bool is_destroyed) {
  charge_.settle({}, [&] {
    const Bytes now = kept();
    is_destroyed_.store(is_destroyed);
    return now;
  });
}

void DriverPools::add(CUmemoryPool handle, DeviceMemory& memory) {
  const MutexLock lock(mutex_);
  auto& pool = pools_[handle];
  if (!pool) pool = std::make_shared<DriverPool>(handle, memory);
}

std::shared_ptr<DriverPool> DriverPools::find(CUmemoryPool handle) const {
  const MutexLock lock(mutex_);
  const auto found = pools_.find(handle);
  return found != pools_.end() ? found->second : nullptr;
}

std::shared_ptr<DriverPool> DriverPools::take(CUmemoryPool handle) {
  const MutexLock lock(mutex_);
  auto found = pools_.extract(handle);
  return found.empty() ? nullptr : std::move(found.mapped());
}

void DriverPools::put_back(CUmemoryPool handle, const std::shared_ptr<DriverPool>& pool) {
  const MutexLock lock(mutex_);
  pools_.emplace(handle, pool);
}

void DriverPools::add_block(CUdeviceptr at, std::shared_ptr<DriverPool> pool, Bytes bytes) {
  const MutexLock lock(mutex_);
  blocks_.insert_or_assign(at, Block{std::move(pool), bytes});
}

std::optional<DriverPools::Block> DriverPools::take_block(CUdeviceptr at) {
  const MutexLock lock(mutex_);
  auto found = blocks_.extract(at);
  if (found.empty()) return std::nullopt;
  return std::move(found.mapped());
}

std::vector<std::shared_ptr<DriverPool>> DriverPools::all_of(const DeviceMemory& memory) const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<DriverPool>> all;
  for (const auto& [handle, pool] : pools_) {
    if (&pool->memory() == &memory) all.push_back(pool);
  }
  return all;
}

void DriverPools::settle(const DeviceMemory& memory) {
  for (const auto& pool : all_of(memory)) pool->settle({});
}

void DriverPools::trim(const DeviceMemory& memory) {
  for (const auto& pool : all_of(memory)) pool->trim();
}

}  // namespace gpumem::shim
