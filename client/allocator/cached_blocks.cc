#include "client/allocator/cached_blocks.h"

#include <algorithm>

namespace gpumem::allocator {
namespace {

// Bytes and blocks that one class may hold in one cache: enough for a batch, too few to be missed elsewhere.
constexpr std::uint64_t kSlotBytes = kibibytes(64).count;
constexpr std::uint64_t kSpanBytes = mebibytes(1).count;
constexpr std::size_t kMostBlocks = 128;
constexpr std::size_t kLeastSlots = 8;

}  // namespace

std::size_t CachedBlocks::capacity_of(ClassIndex size_class) {
  if (size_class == kNoClass) return 1;
  const bool slots = size_class < kSlotClasses;
  const std::uint64_t fit = (slots ? kSlotBytes : kSpanBytes) / kClassBytes[size_class];
  return std::clamp<std::size_t>(fit, slots ? kLeastSlots : 1, kMostBlocks);
}

bool CachedBlocks::can_claim(const Span& span, BlockWord word, std::uint64_t bytes,
                             bool of_any_stream) const {
  const bool classed = span.size_class != kNoClass;
  if (!classed && (span.has_room || span.requested != wanted_large_)) return false;
  const std::uint64_t requested = classed ? word.bytes() : span.requested;
  return word.state() == BlockWord::kUsed && !word.has_recorded_streams() &&
         (of_any_stream || word.stream() == stream_) && (bytes == kUnknownSize.count || bytes == requested);
}

// For a block that another cache handed out, that has another stream or a tag, or that is freed without its
// size. Another thread may free it at the same time. A block with recorded streams waits for these first.
bool CachedBlocks::claim(const Span& span, Slot& slot, std::uint64_t bytes, bool of_any_stream) {
  const BlockWord word = slot.get();
  if (!can_claim(span, word, bytes, of_any_stream)) return false;
  if (span.size_class == kNoClass) large_bytes_.store(wanted_large_, std::memory_order_relaxed);
  std::uint64_t expected = word.bits();
  return slot.word.compare_exchange_strong(expected, cached_.bits(), std::memory_order_relaxed);
}

Address CachedBlocks::pop(std::uint64_t bytes, std::uint32_t now) {
  if (class_of(bytes) != kNoClass) return pop_classed(bytes, now);
  return has_block_for(kNoClass, bytes) ? take_newest(bins_[kNoClass], handed_out_, now) : 0;
}

bool CachedBlocks::push(const Span& span, Slot& slot, Address address, std::uint64_t bytes,
                        bool of_any_stream) {
  if (push_own(span, slot, address, bytes)) return true;
  Bin& bin = bins_[span.size_class];
  if (bin.is_full() || !claim(span, slot, bytes, of_any_stream)) return false;
  bin.add({address, &slot});
  return true;
}

// ---- The block without a class ----

void CachedBlocks::expect_large(std::uint64_t bytes, CacheSink& into) {
  wanted_large_ = bytes == std::exchange(last_large_, bytes) ? bytes : 0;
  if (large_bytes_.load(std::memory_order_relaxed) != bytes) flush_large(into);
}

void CachedBlocks::flush_large(CacheSink& into) {
  if (count(kNoClass) == 0) return;
  hand_over_mark(into);
  remove_oldest(bins_[kNoClass], 1, [&](const Block& block) { into.free_cached(stream_, block); });
}

void CachedBlocks::hand_over_mark(CacheSink& into) {
  if (newest_ != StreamPort::Mark{}) into.hand_over(stream_, std::exchange(newest_, StreamPort::Mark{}));
}

// ---- Bins ----

void CachedBlocks::open(ClassIndex size_class, std::size_t capacity) {
  Bin& bin = bins_[size_class];
  if (!bin.floor) bin.floor = std::make_unique<Block[]>(capacity_of(size_class));
  bin.top.store(bin.floor.get(), std::memory_order_relaxed);
  bin.ceiling = bin.floor.get() + capacity;
}

void CachedBlocks::refill(ClassIndex size_class, const std::vector<Block>& blocks) {
  for (const Block& block : blocks) block.slot->set(cached_);
  std::atomic<Block*>& top = bins_[size_class].top;
  top.store(std::ranges::copy(blocks, top.load(std::memory_order_relaxed)).out, std::memory_order_relaxed);
}

void CachedBlocks::take_older(ClassIndex size_class, std::vector<Block>& into) {
  Bin& bin = bins_[size_class];
  remove_oldest(bin, (bin.capacity() + 1) / 2, [&into](const Block& block) {
    block.slot->set(BlockWord::in_batch());  // a second entry of the block here is none any more
    into.push_back(block);
  });
}

// The oldest blocks go, because the youngest are most likely in the device's caches.
template <class Into>
void CachedBlocks::remove_oldest(Bin& bin, std::size_t count, Into&& into) {
  const std::size_t had = bin.count();
  const std::size_t goes = std::min(count, had);
  for (std::size_t i = 0; i < goes; ++i) {
    if (bin.floor[i].slot->get() == cached_) into(bin.floor[i]);
  }
  Block* const floor = bin.floor.get();
  std::move(floor + goes, floor + had, floor);
  bin.top.store(floor + (had - goes), std::memory_order_relaxed);
}

std::uint64_t CachedBlocks::flush(CacheSink& into) {
  std::uint64_t could_hold = 0;
  const bool is_empty = std::ranges::all_of(bins_, [](const Bin& bin) { return bin.count() == 0; });
  if (!is_empty) hand_over_mark(into);
  for (ClassIndex i = 0; i <= kClasses; ++i) {
    Bin& bin = bins_[i];
    if (!is_open(i)) continue;
    could_hold += i == kNoClass ? 0 : bin.capacity() * kClassBytes[i];
    remove_oldest(bin, kMostBlocks, [&](const Block& block) { into.free_cached(stream_, block); });
    bin.ceiling = bin.floor.get();
  }
  return could_hold;
}

std::uint64_t CachedBlocks::dismiss(CacheSink& into) {
  const std::uint64_t could_hold = flush(into);
  into.dismiss(stream_, {std::exchange(newest_, {}), std::exchange(spare_, {})});
  assign(kNoStream);
  return could_hold;
}

std::uint64_t CachedBlocks::bytes() const {
  std::uint64_t sum = bins_[kNoClass].count() * large_bytes_.load(std::memory_order_relaxed);
  for (ClassIndex i = 0; i < kClasses; ++i) sum += bins_[i].count() * kClassBytes[i];
  return sum;
}

int CachedBlocks::age() {
  std::uint64_t uses = bytes();
  for (ClassIndex i = 0; i <= kClasses; ++i) uses += hits(i);
  idle_ticks_ = uses == uses_ ? idle_ticks_ + 1 : 0;
  uses_ = uses;
  return idle_ticks_;
}

}  // namespace gpumem::allocator
