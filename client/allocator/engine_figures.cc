#include <algorithm>

#include "client/allocator/engine.h"

// Statistics and snapshots.

namespace gpumem::allocator {
namespace {

constexpr std::size_t kTagBytes = 63;
constexpr std::size_t kMostTags = 255;

// Calls `visit` with each block in use of `span`: its address and sizes, its slot and its word.
template <class Visit>
void each_block(const Span& span, Visit visit) {
  for (std::uint32_t i = 0; i < span.slot_count; ++i) {
    const Slot& slot = span.slots[i];
    const BlockWord word = slot.get();
    if (word.state() != BlockWord::kUsed) continue;
    const bool classed = span.size_class != kNoClass;
    const std::uint64_t takes = classed ? span.slot_bytes : span.bytes;
    visit(BlockInfo{.address = span.base + std::uint64_t{i} * span.slot_bytes,
                    .bytes = {classed ? word.bytes() : span.requested},
                    .placed = {takes}},
          slot, word);
  }
}

}  // namespace

std::uint64_t Engine::blocks_in_use() const {
  std::uint64_t count = 0;
  heap_.each_in_use([&](const Span& span) {
    if (span.slots == nullptr) return;
    each_block(span, [&](const BlockInfo&, const Slot&, BlockWord) { ++count; });
  });
  return count;
}

Result<Tag> Engine::tag(std::string_view name) {
  if (auto can = usable(); !can) return can.error();
  if (name.empty() || name.size() > kTagBytes) {
    return Error{Code::kInvalidArgument, "a tag has 1 to " + std::to_string(kTagBytes) + " bytes"};
  }
  const MutexLock lock(lock_);
  const auto found = std::ranges::find(tags_, name);
  const auto number = static_cast<std::size_t>(found - tags_.begin()) + 1;
  if (number > kMostTags) {
    return Error{Code::kResourceExhausted, "there are " + std::to_string(kMostTags) + " tags already"};
  }
  if (found == tags_.end()) tags_.emplace_back(name);
  return Tag{static_cast<std::uint8_t>(number)};
}

std::vector<std::string> Engine::tags() const {
  const MutexLock lock(lock_);
  return tags_;
}

Result<AllocatorStatistics> Engine::statistics() const {
  if (auto can = usable(); !can) return can.error();
  const MutexLock lock(lock_);
  AllocatorStatistics all;
  std::array<SizeClassStatistics, kClasses + 1> classes{};
  heap_.each_in_use([&](const Span& span) {
    if (span.slots == nullptr) return;
    each_block(span, [&](const BlockInfo& block, const Slot&, BlockWord) {
      all.in_use += block.bytes;
      all.placed += block.placed;
      ++classes[span.size_class].in_use;
    });
  });
  for (ClassIndex i = 0; i <= kClasses; ++i) {
    std::uint64_t hits = i < kClasses ? counters_.hits[i] : 0;
    for (const Cached& cached : caches_) hits += i < kClasses ? cached.cache->hits(i) : 0;
    classes[i].size = {i < kClasses ? kClassBytes[i] : limit_.count};
    classes[i].cache_hits = hits;
    classes[i].allocations = hits + counters_.slow[i];
    all.allocations += classes[i].allocations;
    all.cache_hits += hits;
    if (classes[i].allocations != 0) all.classes.push_back(classes[i]);
  }
  for (const Cached& cached : caches_) all.cached += {cached.cache->bytes()};
  all.committed = extents_.committed();
  all.returnable = extents_.returnable();
  all.reserved = addresses_;
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

Result<void> Engine::reset_peaks() {
  if (auto can = usable(); !can) return can;
  const MutexLock lock(lock_);
  counters_.peak_used = heap_.used_bytes();
  counters_.peak_committed = extents_.committed();
  return {};
}

Result<std::vector<BlockInfo>> Engine::snapshot() const {
  if (auto can = usable(); !can) return can.error();
  const MutexLock lock(lock_);
  const std::uint32_t now = seconds_.load(std::memory_order_relaxed);
  const Streams* streams = &streams_;
  const std::vector<std::string>* tags = &tags_;
  std::vector<BlockInfo> blocks;
  heap_.each_in_use([&](const Span& span) {
    if (span.slots == nullptr) return;
    each_block(span, [&](BlockInfo block, const Slot& slot, BlockWord word) {
      const std::uint32_t born = slot.born.load(std::memory_order_relaxed);
      block.stream = streams->handle(word.stream());
      block.age = std::chrono::seconds(now - std::min(now, born));
      if (word.tag() != 0) block.tag = (*tags)[word.tag() - 1U];
      blocks.push_back(std::move(block));
    });
  });
  std::ranges::sort(blocks, {}, &BlockInfo::address);
  return blocks;
}

}  // namespace gpumem::allocator
