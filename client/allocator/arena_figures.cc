#include <algorithm>

#include "client/allocator/arena.h"

// Statistics and snapshots.

namespace gpumem::allocator {
namespace {

// Calls `visit` with each block in use: its address and sizes, its size class, its slot and its word.
template <class Visit>
void each_block(const Heap& heap, Visit visit) {
  for (const Span& span : heap.spans()) {
    if (!span.is_in_use() || span.slots == nullptr) continue;
    for (std::uint32_t i = 0; i < span.slot_count; ++i) {
      const BlockWord word = span.slots[i].get();
      if (word.state() != BlockWord::kUsed) continue;
      const bool classed = span.size_class != kNoClass;
      const std::uint64_t takes = classed ? span.slot_bytes : span.bytes;
      visit(BlockInfo{.address = span.base + std::uint64_t{i} * span.slot_bytes,
                      .bytes = {classed ? word.bytes() : span.requested},
                      .placed = {takes}},
            span.size_class, span.slots[i], word);
    }
  }
}

}  // namespace

std::uint64_t Arena::blocks_in_use() const {
  std::uint64_t count = 0;
  each_block(heap_, [&](const BlockInfo&, ClassIndex, const Slot&, BlockWord) { ++count; });
  return count;
}

AllocatorStatistics Arena::statistics() const {
  AllocatorStatistics all;
  std::array<SizeClassStatistics, kClasses + 1> classes{};
  each_block(heap_, [&](const BlockInfo& block, ClassIndex size_class, const Slot&, BlockWord) {
    all.in_use += block.bytes;
    all.placed += block.placed;
    ++classes[size_class].in_use;
  });
  for (ClassIndex i = 0; i <= kClasses; ++i) {
    const std::uint64_t hits = caches_.hits(i);
    classes[i].size = {i < kClasses ? kClassBytes[i] : properties_.limit.count};
    classes[i].cache_hits = hits;
    classes[i].allocations = hits + counters_.slow[i];
    all.allocations += classes[i].allocations;
    all.cache_hits += hits;
    if (classes[i].allocations != 0) all.classes.push_back(classes[i]);
  }
  all.cached = {caches_.bytes()};
  all.committed = extents_.committed();
  all.returnable = extents_.returnable();
  all.reserved = properties_.addresses;
  all.peak_in_use = {std::max(counters_.peak_used, heap_.used_bytes())};
  all.peak_committed = counters_.peak_committed;
  const Bytes accounted = all.placed + all.cached + all.returnable;
  if (!all.committed.is_zero()) {
    all.fragmentation =
        static_cast<double>(all.committed.minus(accounted).count) / static_cast<double>(all.committed.count);
  }
  all.growths = counters_.growths;
  all.refused = counters_.refused;
  all.moved_extents = extents_.moved();
  all.given_back = counters_.given_back;
  return all;
}

void Arena::reset_peaks() {
  counters_.peak_used = heap_.used_bytes();
  counters_.peak_committed = extents_.committed();
}

std::vector<BlockInfo> Arena::snapshot(const std::vector<std::string>& tags) const {
  const std::uint32_t now = seconds_.load(std::memory_order_relaxed);
  std::vector<BlockInfo> blocks;
  each_block(heap_, [&](BlockInfo block, ClassIndex, const Slot& slot, BlockWord word) {
    const std::uint32_t born = slot.born.load(std::memory_order_relaxed);
    block.stream = streams_.handle(word.stream());
    block.age = std::chrono::seconds(now - std::min(now, born));
    if (word.tag() != 0) block.tag = tags[word.tag() - 1U];
    blocks.push_back(std::move(block));
  });
  std::ranges::sort(blocks, {}, &BlockInfo::address);
  return blocks;
}

}  // namespace gpumem::allocator
