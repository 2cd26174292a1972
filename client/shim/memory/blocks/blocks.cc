#include "client/shim/memory/blocks/blocks.h"

#include <algorithm>
#include <array>

#include "client/shim/memory/blocks/device_memory.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuDeviceGetDefaultMemPool)> real_default_pool("cuDeviceGetDefaultMemPool");

struct Remembered {
  std::uint64_t asked = 0;
  CUstream stream = nullptr;
  CUmemoryPool pool = nullptr;
};
constinit thread_local std::array<Remembered, 8> remembered{};

Remembered& place_of(CUstream stream) {
  return remembered[reinterpret_cast<std::uintptr_t>(stream) / 64 % remembered.size()];
}

}  // namespace

constinit std::atomic<std::uint64_t> CurrentPool::generation_{1};

CUmemoryPool CurrentPool::find(CUstream stream) {
  const Remembered& one = place_of(stream);
  return one.stream == stream && one.asked == now() ? one.pool : nullptr;
}

void CurrentPool::remember(CUstream stream, CUmemoryPool pool, std::uint64_t asked) {
  place_of(stream) = {asked, stream, pool};
}

void Blocks::add(Block block) {
  const MutexLock lock(mutex_);
  block.id = ++last_id_;
  blocks_.insert_or_assign(block.at, block);
}

void Blocks::put_back(const Block& block) {
  const MutexLock lock(mutex_);
  blocks_.insert_or_assign(block.at, block);
}

std::optional<Block> Blocks::take(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return std::nullopt;
  const Block block = found->second;
  blocks_.erase(found);
  return block;
}

std::optional<Block> Blocks::find(CUdeviceptr address) const {
  const MutexLock lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const Block& block = std::prev(after)->second;
  return block.holds(address) ? std::optional(block) : std::nullopt;
}

void Blocks::set_synchronous(CUdeviceptr address, bool is_synchronous) {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(address);
  if (found != blocks_.end()) found->second.is_synchronous = is_synchronous;
}

std::vector<Block> Blocks::take_of(CUcontext context) {
  const MutexLock lock(mutex_);
  std::vector<Block> taken;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const bool ends = it->second.context == context;
    if (ends) taken.push_back(it->second);
    it = ends ? blocks_.erase(it) : std::next(it);
  }
  return taken;
}

void Blocks::move(CUcontext from, CUcontext to) {
  const MutexLock lock(mutex_);
  for (auto& [at, block] : blocks_)
    if (block.context == from) block.context = to;
}

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
