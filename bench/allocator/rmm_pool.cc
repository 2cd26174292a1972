#include "bench/allocator/rmm_pool.h"

namespace gpumem::bench {

std::uint64_t RmmPool::allocate(Bytes bytes, std::uint32_t stream) {
  const std::uint64_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  FreeList& mine = free_[stream];
  if (const std::uint64_t address = best_fit(mine, mine, size)) return address;
  if (const std::uint64_t address = from_others(mine, size)) return address;
  return grow(mine, size);
}

void RmmPool::deallocate(std::uint64_t address, Bytes bytes, std::uint32_t stream) {
  const std::lock_guard lock(mutex_);
  put(free_[stream], address, rounded(bytes));
}

std::uint64_t RmmPool::best_fit(FreeList& list, FreeList& rest_to, std::uint64_t size) {
  auto best = list.end();
  for (auto block = list.begin(); block != list.end(); ++block) {
    if (block->second < size || (best != list.end() && block->second >= best->second)) continue;
    best = block;
    if (block->second == size) break;
  }
  if (best == list.end()) return 0;
  const auto [address, has] = *best;
  list.erase(best);
  if (has > size) rest_to.emplace(address + size, has - size);
  return address;
}

void RmmPool::put(FreeList& list, std::uint64_t address, std::uint64_t size) {
  auto next = list.lower_bound(address);
  if (next != list.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == address && !heads_.contains(address)) {
      address = previous->first;
      size += previous->second;
      list.erase(previous);
    }
  }
  if (next != list.end() && address + size == next->first && !heads_.contains(next->first)) {
    size += next->second;
    list.erase(next);
  }
  list.emplace(address, size);
}

std::uint64_t RmmPool::from_others(FreeList& mine, std::uint64_t size) {
  for (auto& [stream, list] : free_) {
    if (&list == &mine) continue;
    if (const std::uint64_t address = best_fit(list, mine, size)) return address;
  }
  for (auto& [stream, list] : free_) {
    if (&list == &mine || list.empty()) continue;
    for (const auto& [address, has] : list) put(mine, address, has);
    list.clear();
    if (const std::uint64_t address = best_fit(mine, mine, size)) return address;
  }
  return 0;
}

std::uint64_t RmmPool::grow(FreeList& mine, std::uint64_t size) {
  std::uint64_t more = std::max(size, memory_.committed().count);
  std::uint64_t at = memory_.take({more});
  // An amount that cannot be had is tried again, half as large.
  while (at == 0 && more > size) {
    more = std::max(size, more / 2 / kUnit * kUnit);
    at = memory_.take({more});
  }
  if (at == 0) return 0;
  heads_.insert(at);
  mine.emplace(at, more);
  return best_fit(mine, mine, size);
}

}  // namespace gpumem::bench
