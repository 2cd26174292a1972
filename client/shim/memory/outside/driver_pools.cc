#include "client/shim/memory/outside/driver_pools.h"

#include <algorithm>
#include <utility>

#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuMemPoolGetAttribute)> real_pool_figure("cuMemPoolGetAttribute");
constinit RealCall<decltype(::cuMemPoolTrimTo)> real_trim_pool("cuMemPoolTrimTo");

using Range = boost::icl::interval<CUdeviceptr>;

/// The addresses of a block, which the driver aligns.
auto block_at(CUdeviceptr at, Bytes bytes) {
  constexpr Bytes kAlignment{512};
  return Range::right_open(at, at + bytes.rounded_up(kAlignment).value_or(bytes).count);
}

}  // namespace

// A destroyed pool tells nothing, and keeps nothing for later.
Bytes DriverPool::kept() const {
  cuuint64_t kept = 0;
  const bool is_told = !is_destroyed_.load() &&
                       real_pool_figure(handle_, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &kept) == CUDA_SUCCESS;
  return is_told ? std::max(Bytes{kept}, used()) : used();
}

// Nobody tells which memory a smaller pool has given back.
Bytes DriverPool::look() {
  const Bytes now = kept();
  if (now < last_kept_) idle_.clear();
  last_kept_ = now;
  return now;
}

// A block that fits into one piece of idle memory needs no more. If work of another stream still uses that
// piece, the driver takes more, which is seen afterwards.
MeasuredCharge::Need DriverPool::need_of(Bytes bytes) {
  const auto has_room = [&](const auto& piece) { return piece.upper() - piece.lower() >= bytes.count; };
  const Bytes now = look();
  if (std::ranges::any_of(idle_, has_room)) return {};
  return {now, bytes.rounded_up(memory().granularity()).value_or(bytes)};
}

// New memory is taken to begin with the block that it was taken for.
void DriverPool::note_block(CUdeviceptr at, Bytes bytes, Bytes grown) {
  if (!grown.is_zero()) idle_ += Range::right_open(at, at + grown.count);
  idle_ -= block_at(at, bytes);
}

// The memory that was taken for the block stays unused: the charge has no room for it.
void DriverPool::forget_block(CUdeviceptr at, Bytes bytes, Bytes grown) {
  charge_.settle({}, [&] {
    used_.fetch_sub(bytes.count);
    idle_ -= Range::right_open(at, at + grown.count);
    return look();
  });
}

void DriverPool::freed(CUdeviceptr at, Bytes bytes) {
  charge_.settle({}, [&] {
    used_.fetch_sub(bytes.count);
    idle_ += block_at(at, bytes);
    return look();
  });
}

void DriverPool::settle() {
  charge_.settle({}, [this] { return look(); });
}

void DriverPool::trim() {
  charge_.settle({}, [this] {
    if (!is_destroyed_.load()) (void)real_trim_pool(handle_, 0);
    return look();
  });
}

void DriverPool::set_destroyed(bool is_destroyed) {
  charge_.settle({}, [&] {
    const Bytes now = look();
    is_destroyed_.store(is_destroyed);
    return now;
  });
}

void DriverPools::add(CUmemoryPool handle, Chargeable& memory) {
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

std::vector<std::shared_ptr<DriverPool>> DriverPools::all_of(const Chargeable& memory) const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<DriverPool>> all;
  for (const auto& [handle, pool] : pools_) {
    if (&pool->memory() == &memory) all.push_back(pool);
  }
  return all;
}

void DriverPools::settle(const Chargeable& memory) {
  for (const auto& pool : all_of(memory)) pool->settle();
}

void DriverPools::trim(const Chargeable& memory) {
  for (const auto& pool : all_of(memory)) pool->trim();
}

}  // namespace gpumem::shim
