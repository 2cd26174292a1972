#include "sim/driver/memory/pools_blocks.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace gpumem::sim {
namespace {

/// Far from the ids of other memory. Threads: the driver's lock is held.
std::uint64_t next_id() {
  static std::uint64_t last = std::uint64_t{1} << 63;
  return ++last;
}

bool is_for_everyone(const Ticket& freed) { return freed.stream() == 0; }

}  // namespace

std::uint64_t Blocks::rounded(std::uint64_t wanted) {
  return (std::max<std::uint64_t>(wanted, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

void Blocks::add_chunk(CUdeviceptr start, std::uint64_t size) {
  chunks_[start] = size;
  reserved_ += size;
  list(blocks_.emplace(start, Block{.chunk = start, .size = size}).first);
}

void Blocks::remove_chunk(CUdeviceptr start) {
  const std::uint64_t size = chunks_.at(start);
  const auto begin = blocks_.find(start), end = blocks_.lower_bound(start + size);
  for (auto block = begin; block != end; ++block) {
    if (block->second.is_used) {
      used_ -= block->second.size;
    } else {
      unlist(block);
    }
  }
  blocks_.erase(begin, end);
  chunks_.erase(start);
  reserved_ -= size;
}

std::optional<Blocks::Taken> Blocks::take(std::uint64_t wanted,
                                          const std::function<bool(const Ticket&)>& may_take) {
  for (auto it = free_.lower_bound({rounded(wanted), 0}); it != free_.end(); ++it) {
    const auto block = blocks_.find(it->second);
    if (!may_take(block->second.freed)) continue;
    Taken taken{block->first, block->second.freed};
    use(block, wanted);
    return taken;
  }
  return std::nullopt;
}

bool Blocks::take_at(CUdeviceptr address, std::uint64_t wanted) {
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin() || address % kAlignment != 0) return false;
  --block;
  const std::uint64_t before = address - block->first;
  const std::uint64_t size = block->second.size;
  if (block->second.is_used || before >= size || rounded(wanted) > size - before) return false;
  if (before > 0) {
    unlist(block);
    cut_after(block, before);
    list(block);
    block = blocks_.find(address);
  }
  use(block, wanted);
  return true;
}

bool Blocks::give_back(CUdeviceptr address, Ticket freed) {
  const auto block = blocks_.find(address);
  if (block == blocks_.end() || !block->second.is_used) return false;
  used_ -= block->second.size;
  block->second.is_used = false;
  block->second.freed = std::move(freed);
  list(block);
  join(block);
  return true;
}

void Blocks::settle() {
  std::vector<CUdeviceptr> past;
  for (const CUdeviceptr address : unsettled_) {
    if (blocks_.at(address).freed.is_done()) past.push_back(address);
  }
  for (const CUdeviceptr address : past) {
    const auto block = blocks_.find(address);
    if (block == blocks_.end()) continue;  // joined with the one before it
    unlist(block);
    block->second.freed = Ticket();
    list(block);
    join(block);
  }
}

std::pair<CUdeviceptr, const Blocks::Block*> Blocks::find_used(CUdeviceptr address) const {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return {0, nullptr};
  const auto& [start, block] = *std::prev(after);
  const bool is_inside = block.is_used && address - start < block.size;
  return is_inside ? std::pair{start, &block} : std::pair<CUdeviceptr, const Block*>{0, nullptr};
}

std::vector<CUdeviceptr> Blocks::idle_chunks() const {
  std::vector<CUdeviceptr> idle;
  for (const auto& [start, size] : chunks_) {
    const Block& first = blocks_.at(start);
    if (!first.is_used && first.size == size && is_for_everyone(first.freed)) idle.push_back(start);
  }
  std::ranges::stable_sort(idle, std::greater(), [this](CUdeviceptr start) { return chunks_.at(start); });
  return idle;
}

/// Makes the first bytes of a free block a used one.
void Blocks::use(Map::iterator block, std::uint64_t wanted) {
  unlist(block);
  cut_after(block, rounded(wanted));
  block->second.is_used = true;
  block->second.id = next_id();
  block->second.wanted = wanted;
  block->second.freed = Ticket();
  used_ += block->second.size;
}

/// Makes what follows the first `size` bytes of an unlisted block a free block of its own.
void Blocks::cut_after(Map::iterator block, std::uint64_t size) {
  Block& whole = block->second;
  if (whole.size == size) return;
  Block rest{.chunk = whole.chunk, .size = whole.size - size, .freed = whole.freed};
  whole.size = size;
  list(blocks_.emplace(block->first + size, std::move(rest)).first);
}

void Blocks::list(Map::iterator block) {
  free_.emplace(block->second.size, block->first);
  if (!is_for_everyone(block->second.freed)) unsettled_.insert(block->first);
}

void Blocks::unlist(Map::iterator block) {
  free_.erase({block->second.size, block->first});
  unsettled_.erase(block->first);
}

bool Blocks::can_join(Map::iterator left, Map::iterator right) const {
  const Block &a = left->second, &b = right->second;
  return !a.is_used && !b.is_used && a.chunk == b.chunk && a.freed.stream() == b.freed.stream();
}

/// Joins a listed block with the free blocks beside it; of two points of one stream the later one counts.
void Blocks::join(Map::iterator block) {
  if (block != blocks_.begin() && can_join(std::prev(block), block)) --block;
  for (auto next = std::next(block); next != blocks_.end() && can_join(block, next);
       next = std::next(block)) {
    unlist(block);
    unlist(next);
    if (next->second.freed.position() > block->second.freed.position()) {
      block->second.freed = next->second.freed;
    }
    block->second.size += next->second.size;
    blocks_.erase(next);
    list(block);
  }
}

}  // namespace gpumem::sim
