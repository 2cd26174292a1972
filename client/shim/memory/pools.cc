#include "client/shim/memory/pools.h"

#include <algorithm>

#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuDeviceGetDefaultMemPool)> real_default_pool("cuDeviceGetDefaultMemPool");

}  // namespace

bool Pool::use(Bytes bytes) {
  const MutexLock lock(mutex_);
  const auto all = figures_.used.plus(bytes);
  if (!all || (!most_.is_zero() && *all > most_)) return false;
  figures_.used = *all;
  figures_.most_used = std::max(figures_.most_used, figures_.used);
  return true;
}

void Pool::free(Bytes bytes) {
  const MutexLock lock(mutex_);
  figures_.used -= bytes;
}

Pool::Figures Pool::figures() const {
  const MutexLock lock(mutex_);
  return figures_;
}

void Pool::reset_most_used() {
  const MutexLock lock(mutex_);
  figures_.most_used = figures_.used;
}

void Pools::add(CUmemoryPool handle, DeviceMemory& memory, Bytes most) {
  const MutexLock lock(mutex_);
  pools_.insert_or_assign(handle, std::make_shared<Pool>(handle, memory, most));
}

std::shared_ptr<Pool> Pools::take(CUmemoryPool handle) {
  const MutexLock lock(mutex_);
  auto found = pools_.extract(handle);
  return found.empty() ? nullptr : std::move(found.mapped());
}

void Pools::put_back(const std::shared_ptr<Pool>& pool) {
  const MutexLock lock(mutex_);
  pools_.emplace(pool->handle(), pool);
}

std::shared_ptr<Pool> Pools::find(CUmemoryPool handle) const {
  const MutexLock lock(mutex_);
  const auto found = pools_.find(handle);
  return found != pools_.end() ? found->second : nullptr;
}

std::shared_ptr<Pool> Pools::find_or_default(CUmemoryPool handle, DeviceMemory& memory) {
  if (auto known = find(handle)) return known;
  CUmemoryPool its_default = nullptr;
  if (real_default_pool(&its_default, memory.ordinal()) != CUDA_SUCCESS || its_default != handle)
    return nullptr;
  const MutexLock lock(mutex_);
  auto& pool = pools_[handle];
  if (!pool) pool = std::make_shared<Pool>(handle, memory, Bytes{});
  return pool;
}

}  // namespace gpumem::shim
