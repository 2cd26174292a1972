#include "client/allocator/thread_cache.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "client/allocator/engine.h"
#include "client/allocator/streams.h"

namespace gpumem::allocator {
namespace {

// Bytes and blocks that one class may hold in one cache: enough for a batch, too few to be missed elsewhere.
constexpr std::uint64_t kSlotBytes = kibibytes(64).count;
constexpr std::uint64_t kSpanBytes = mebibytes(1).count;
constexpr std::size_t kMostBlocks = 64;
// Bins are reassigned when so many blocks have found no capacity.
constexpr int kMissesBeforeRebalance = 256;
constexpr std::size_t kLeastSlots = 8;

constexpr std::size_t capacity_of(ClassIndex size_class) {
  const bool slots = size_class < kSlotClasses;
  const std::uint64_t fit = (slots ? kSlotBytes : kSpanBytes) / kClassBytes[size_class];
  return std::clamp<std::size_t>(fit, slots ? kLeastSlots : 1, kMostBlocks);
}

#if GPUMEM_PLAIN_FENCES
long membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0); }
#endif

}  // namespace

bool ThreadCache::can_be_stopped() {
#if GPUMEM_PLAIN_FENCES
  static const bool kRegistered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  return kRegistered;
#else
  return true;
#endif
}

ThreadCache::ThreadCache(std::shared_ptr<EngineRef> engine, CacheNumber number)
    : number_(number), cached_(BlockWord::cached(number)), current_(&none_), engine_ref_(std::move(engine)) {}

void ThreadCache::retire() {
  const std::scoped_lock lock(engine_ref_->mutex);
  if (engine_ref_->engine != nullptr) engine_ref_->engine->retire(*this);
}

Address ThreadCache::take_any(std::uint64_t bytes, StreamHandle stream, std::uint32_t now) {
  if (!enter()) return 0;
  const Address address = current_->handle == stream || change_to(stream) ? pop(bytes, now) : 0;
  leave();
  return address;
}

bool ThreadCache::put_any(const Span& span, Slot& slot, Address address, std::uint64_t bytes,
                          StreamHandle stream) {
  if (!enter()) return false;
  const bool kept =
      (current_->handle == stream || change_to(stream)) && push<true>(span, slot, address, bytes);
  leave();
  return kept;
}

Address ThreadCache::take_locked(std::uint64_t bytes, std::uint32_t now) {
  const Bin& bin = current_->bins[class_of(bytes)];
  while (bin.count() != 0) {
    if (const Address address = pop(bytes, now)) return address;
  }
  return 0;
}

bool ThreadCache::change_to(StreamHandle stream) {
  for (const auto& one : streams_) {
    if (one->handle != stream) continue;
    current_ = one.get();
    return true;
  }
  return false;
}

// For a block that another cache handed out, that has another stream or a tag, or that is freed without its
// size. Another thread may free it at the same time.
bool ThreadCache::claim(Slot& slot, std::uint64_t bytes) {
  const BlockWord word = slot.get();
  if (word.state() != BlockWord::kUsed) return false;
  if (bytes != kUnknownSize.count && bytes != word.bytes()) return false;
  std::uint64_t expected = word.bits();
  return slot.word.compare_exchange_strong(expected, cached_.bits(), std::memory_order_relaxed);
}

void ThreadCache::use(StreamHandle stream, StreamIndex index) {
  if ((current_->handle == stream || change_to(stream)) && current_->index == index) return;
  streams_.push_back(std::make_unique<StreamBins>());
  current_ = streams_.back().get();
  current_->handle = stream;
  current_->index = index;
  current_->handed_out = BlockWord::used(index, 0, number_);
}

std::size_t ThreadCache::capacity_for(ClassIndex size_class) const {
  return std::min<std::size_t>(capacity_of(size_class), budget_ / kClassBytes[size_class]);
}

std::size_t ThreadCache::refill_count(ClassIndex size_class) const {
  const Bin& bin = current_->bins[size_class];
  if (bin.capacity() != 0) return (bin.capacity() + 1) / 2;
  const std::size_t capacity = capacity_for(size_class);
  return granted_ + capacity * kClassBytes[size_class] > budget_ ? 0 : (capacity + 1) / 2;
}

void ThreadCache::refill(ClassIndex size_class, const Block* blocks, std::size_t count) {
  ensure_capacity(size_class, nullptr);
  Bin& bin = current_->bins[size_class];
  Block* top = bin.top.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    blocks[i].slot->set(cached_);
    *top++ = blocks[i];
  }
  bin.top.store(top, std::memory_order_relaxed);
}

bool ThreadCache::ensure_capacity(ClassIndex size_class, const FlushTarget& into) {
  Bin& bin = current_->bins[size_class];
  if (bin.capacity() == 0) {
    const std::size_t capacity = capacity_for(size_class);
    if (capacity == 0) return false;
    if (granted_ + capacity * kClassBytes[size_class] > budget_) {
      if (++misses_ < kMissesBeforeRebalance) return false;
      rebalance(into);
    }
    granted_ += capacity * kClassBytes[size_class];
    current_->blocks[size_class] = std::make_unique<Block[]>(capacity);
    bin.floor = current_->blocks[size_class].get();
    bin.top.store(bin.floor, std::memory_order_relaxed);
    bin.ceiling = bin.floor + capacity;
  }
  if (bin.count() == bin.capacity()) flush_bin(*current_, size_class, (bin.capacity() + 1) / 2, into);
  return true;
}

// The classes that are in use will ask for capacity again.
void ThreadCache::rebalance(const FlushTarget& into) {
  flush(into, true);
  for (const auto& bins : streams_) {
    for (Bin& bin : bins->bins) bin.ceiling = bin.floor;
  }
  granted_ = 0;
  misses_ = 0;
}

// The oldest blocks go, because the youngest are most likely in the device's caches.
void ThreadCache::flush_bin(StreamBins& bins, ClassIndex size_class, std::size_t count,
                            const FlushTarget& into) {
  Bin& bin = bins.bins[size_class];
  const std::size_t had = bin.count();
  const std::size_t goes = std::min(count, had);
  for (std::size_t i = 0; i < goes; ++i) {
    if (bin.floor[i].slot->get() == cached_) into(bin.floor[i], bins.index);
  }
  std::move(bin.floor + goes, bin.floor + had, bin.floor);
  bin.top.store(bin.floor + (had - goes), std::memory_order_relaxed);
}

void ThreadCache::flush(const FlushTarget& into, bool by_owner, StreamIndex only) {
  for (const auto& bins : streams_) {
    if (only != kNoStream && bins->index != only) continue;
    if (!by_owner && Streams::is_per_thread(bins->handle)) continue;
    for (ClassIndex i = 0; i < kClasses; ++i) flush_bin(*bins, i, kMostBlocks, into);
  }
}

std::vector<StreamIndex> ThreadCache::per_thread_streams() const {
  std::vector<StreamIndex> found;
  for (const auto& bins : streams_) {
    if (Streams::is_per_thread(bins->handle)) found.push_back(bins->index);
  }
  return found;
}

void ThreadCache::drop_stream(StreamIndex index) {
  if (current_->index == index) current_ = &none_;
  std::erase_if(streams_, [&](const auto& bins) {
    if (bins->index != index) return false;
    for (ClassIndex i = 0; i < kClasses; ++i) {
      dropped_hits_[i] += bins->bins[i].hits.load(std::memory_order_relaxed);
      granted_ -= bins->bins[i].capacity() * kClassBytes[i];
    }
    return true;
  });
}

void ThreadCache::stop(std::span<ThreadCache* const> caches) {
  if (caches.empty()) return;
  for (ThreadCache* cache : caches) cache->stopped_.store(true, std::memory_order_seq_cst);
#if GPUMEM_PLAIN_FENCES
  membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
#endif
  for (const ThreadCache* cache : caches) {
    while (cache->busy_.load(std::memory_order_seq_cst)) std::this_thread::yield();
  }
}

std::uint64_t ThreadCache::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& bins : streams_) {
    for (ClassIndex i = 0; i < kClasses; ++i) {
      sum += bins->bins[i].count() * kClassBytes[i];
    }
  }
  return sum;
}

std::uint64_t ThreadCache::hits(ClassIndex size_class) const {
  std::uint64_t sum = dropped_hits_[size_class];
  for (const auto& bins : streams_) sum += bins->bins[size_class].hits.load(std::memory_order_relaxed);
  return sum;
}

std::uint64_t ThreadCache::uses() const {
  std::uint64_t sum = bytes();
  for (ClassIndex i = 0; i < kClasses; ++i) sum += hits(i);
  return sum;
}

}  // namespace gpumem::allocator
