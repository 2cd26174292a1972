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

// What a class may hold in one cache: enough to serve a batch, few enough not to be missed elsewhere.
constexpr std::uint64_t kSlotBytes = kibibytes(64).count;
constexpr std::uint64_t kPieceBytes = mebibytes(1).count;
constexpr std::size_t kMostBlocks = 64;
// Rooms are shared out anew when so many blocks have found none.
constexpr int kPatience = 256;
constexpr std::size_t kLeastSlots = 8;

constexpr std::size_t room_of(ClassIndex size_class) {
  const bool slots = size_class < kSlotClasses;
  const std::uint64_t fit = (slots ? kSlotBytes : kPieceBytes) / kClassBytes[size_class];
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

ThreadCache::ThreadCache(std::shared_ptr<Home> home, CacheNumber number)
    : number_(number), cached_(BlockWord::cached(number)), current_(&none_), home_(std::move(home)) {}

void ThreadCache::retire() {
  const std::scoped_lock lock(home_->mutex);
  if (home_->engine != nullptr) home_->engine->retire(*this);
}

Address ThreadCache::take_any(std::uint64_t bytes, StreamHandle stream, std::uint32_t now) {
  if (!enter()) return 0;
  const Address address = current_->handle == stream || change_to(stream) ? pop(bytes, now) : 0;
  leave();
  return address;
}

bool ThreadCache::put_any(const Piece& piece, Slot& slot, Address address, std::uint64_t bytes,
                          StreamHandle stream) {
  if (!enter()) return false;
  const bool kept =
      (current_->handle == stream || change_to(stream)) && push<true>(piece, slot, address, bytes);
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

// What was handed out by another cache, on another stream or with a tag, or is freed without its size.
// Another thread may free it, too, at the same time.
bool ThreadCache::claim(Slot& slot, std::uint64_t bytes) {
  const BlockWord word = slot.get();
  if (word.state() != BlockWord::kUsed) return false;
  if (bytes != Allocator::kUnknownSize.count && bytes != word.bytes()) return false;
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

std::size_t ThreadCache::room_for(ClassIndex size_class) const {
  return std::min<std::size_t>(room_of(size_class), budget_ / kClassBytes[size_class]);
}

std::size_t ThreadCache::wants(ClassIndex size_class) const {
  const Bin& bin = current_->bins[size_class];
  if (bin.room() != 0) return (bin.room() + 1) / 2;
  const std::size_t room = room_for(size_class);
  return granted_ + room * kClassBytes[size_class] > budget_ ? 0 : (room + 1) / 2;
}

void ThreadCache::fill(ClassIndex size_class, const Block* blocks, std::size_t count) {
  make_room(size_class, nullptr);
  Bin& bin = current_->bins[size_class];
  Block* top = bin.top.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    blocks[i].slot->set(cached_);
    *top++ = blocks[i];
  }
  bin.top.store(top, std::memory_order_relaxed);
}

bool ThreadCache::make_room(ClassIndex size_class, const Emptied& into) {
  Bin& bin = current_->bins[size_class];
  if (bin.room() == 0) {
    const std::size_t room = room_for(size_class);
    if (room == 0) return false;
    if (granted_ + room * kClassBytes[size_class] > budget_) {
      if (++without_room_ < kPatience) return false;
      take_rooms(into);
    }
    granted_ += room * kClassBytes[size_class];
    current_->blocks[size_class] = std::make_unique<Block[]>(room);
    bin.floor = current_->blocks[size_class].get();
    bin.top.store(bin.floor, std::memory_order_relaxed);
    bin.ceiling = bin.floor + room;
  }
  if (bin.count() == bin.room()) take_out(*current_, size_class, (bin.room() + 1) / 2, into);
  return true;
}

// The classes that are in use now will ask again.
void ThreadCache::take_rooms(const Emptied& into) {
  empty(into, true);
  for (const auto& bins : streams_) {
    for (Bin& bin : bins->bins) bin.ceiling = bin.floor;
  }
  granted_ = 0;
  without_room_ = 0;
}

// The oldest go: the youngest are the likeliest to be in the device's caches.
void ThreadCache::take_out(StreamBins& bins, ClassIndex size_class, std::size_t count, const Emptied& into) {
  Bin& bin = bins.bins[size_class];
  const std::size_t had = bin.count();
  const std::size_t goes = std::min(count, had);
  for (std::size_t i = 0; i < goes; ++i) {
    if (bin.floor[i].slot->get() == cached_) into(bin.floor[i], bins.index);
  }
  std::move(bin.floor + goes, bin.floor + had, bin.floor);
  bin.top.store(bin.floor + (had - goes), std::memory_order_relaxed);
}

void ThreadCache::empty(const Emptied& into, bool by_owner, StreamIndex only) {
  for (const auto& bins : streams_) {
    if (only != kNoStream && bins->index != only) continue;
    if (!by_owner && Streams::is_per_thread(bins->handle)) continue;
    for (ClassIndex i = 0; i < kClasses; ++i) take_out(*bins, i, kMostBlocks, into);
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
      granted_ -= bins->bins[i].room() * kClassBytes[i];
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
