#include "client/allocator/thread_cache.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "base/thread_guards.h"
#include "client/allocator/engine.h"

namespace gpumem::allocator {
namespace {

// Bins are reassigned when so many blocks have found no capacity.
constexpr int kMissesBeforeRebalance = 256;
// Far longer than a processor keeps a store to itself (microseconds).
constexpr std::chrono::milliseconds kStoresTake{20};

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

enum class Barriers { kUnknown, kBeingRegistered, kRegistered, kUnavailable };
std::atomic<Barriers> barriers{Barriers::kUnknown};

/// A folder has two links besides those of its folders. Where /proc tells nothing, there may be more threads.
bool has_one_thread() {
  struct stat tasks {};
  return ::stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;
}

/// The child of a process whose thread registers it has no such thread, and begins anew.
const int kNoForksHeard = ::pthread_atfork(nullptr, nullptr, [] {
  Barriers being = Barriers::kBeingRegistered;
  barriers.compare_exchange_strong(being, Barriers::kUnknown);
});

void register_for_barriers() {
  const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  barriers.store(registered ? Barriers::kRegistered : Barriers::kUnavailable, std::memory_order_release);
}

}  // namespace

void ThreadCache::prepare() {
  Barriers unknown = Barriers::kUnknown;
  if (!kPlainFences || !barriers.compare_exchange_strong(unknown, Barriers::kBeingRegistered)) return;
  if (kNoForksHeard != 0 || has_one_thread()) return register_for_barriers();
  const SignalsBlocked in_the_thread;
  try {
    std::thread(register_for_barriers).detach();
  } catch (const std::system_error&) {  // there is no thread to be had
    register_for_barriers();
  }
}

bool ThreadCache::can_be_stopped() {
  if (!kPlainFences) return true;
  Barriers known = barriers.load(std::memory_order_acquire);
  if (known == Barriers::kUnknown) [[unlikely]] {
    prepare();
    known = barriers.load(std::memory_order_acquire);
  }
  return known == Barriers::kRegistered;
}

void ThreadCache::resume() {
  if (can_be_stopped()) stopped_.store(false, std::memory_order_seq_cst);
}

ThreadCache::ThreadCache(std::shared_ptr<EngineRef> engine, CacheNumber number, StreamPort& port)
    : legacy_(number), port_(port), number_(number), engine_ref_(std::move(engine)) {}

void ThreadCache::retire() {
  const std::scoped_lock lock(engine_ref_->mutex);
  if (engine_ref_->engine != nullptr) engine_ref_->engine->retire(*this);
}

// ---- Any stream but the per-thread default stream ----

/// Leaves, even if the thread is cancelled in a driver call.
struct ThreadCache::Leaving {
  ThreadCache& cache;
  ~Leaving() { cache.leave(); }
};

// A stop waits for these driver calls, as it does for any call of the owner.
Address ThreadCache::take_of(StreamHandle stream, std::uint64_t bytes, std::uint32_t now) {
  const ClassIndex size_class = class_of(bytes);
  if (!enter()) return 0;
  const Leaving leaves{*this};
  if (Streams::is_legacy(stream)) return legacy_.pop(bytes, now);
  for (std::size_t i = 0; i < places_; ++i) {
    if (!of_streams_[i]->has_block_for(size_class, bytes)) continue;  // without any, the driver is not asked
    CachedBlocks* own = find_named(stream);
    return own != nullptr ? own->pop(bytes, now) : 0;
  }
  return 0;
}

// The mark comes first: a block that is cached has one behind its work, unless its stream is marked late.
// Where no stream's cache has a place for the block, the driver is not asked for the stream's id.
bool ThreadCache::put_of(StreamHandle stream, const Span& span, Slot& slot, Address address,
                         std::uint64_t bytes) {
  if (!enter()) return false;
  const Leaving leaves{*this};
  if (Streams::is_legacy(stream)) return legacy_.push(span, slot, address, bytes, false);
  const auto has_place = [&](const auto& blocks) {
    return !blocks->is_full(span.size_class) && blocks->can_claim(span, slot.get(), bytes, false);
  };
  if (std::none_of(of_streams_.begin(), of_streams_.begin() + places_, has_place)) return false;
  CachedBlocks* own = find_named(stream);
  return own != nullptr && has_place(own) && (port_.announces_ends() || own->renew(port_, stream)) &&
         own->push(span, slot, address, bytes, false);
}

CachedBlocks* ThreadCache::find_named(StreamHandle stream) {
  const auto id = port_.id_of(stream);
  if (!id || *id == StreamPort::Id{}) return nullptr;
  for (std::size_t i = 0; i < places_; ++i) {
    if (ids_[i] == *id) return of_streams_[i].get();
  }
  return nullptr;
}

CachedBlocks* ThreadCache::find(StreamIndex stream) {
  for (std::size_t i = 0; i < places_; ++i) {
    if (of_streams_[i]->stream() == stream) return of_streams_[i].get();
  }
  return nullptr;
}

CachedBlocks* ThreadCache::add(StreamIndex stream, StreamPort::Id id, CacheSink& into) {
  std::size_t place = 0;
  while (place < places_ && of_streams_[place]->stream() != kNoStream) ++place;
  if (place == kMostStreams) {
    const auto unused = [](const auto& blocks) { return blocks->bytes() == 0; };
    const auto found = std::ranges::find_if(of_streams_, unused);
    if (found == of_streams_.end()) return nullptr;
    release((*found)->dismiss(into));
    place = static_cast<std::size_t>(found - of_streams_.begin());
  }
  if (place == places_) {
    of_streams_[place] = std::make_unique<CachedBlocks>(number_);
    ++places_;
  }
  of_streams_[place]->assign(stream);
  ids_[place] = id;
  return of_streams_[place].get();
}

void ThreadCache::dismiss(StreamIndex stream, CacheSink& into) {
  for (std::size_t i = 0; i < places_; ++i) {
    CachedBlocks& blocks = *of_streams_[i];
    if (blocks.stream() == kNoStream || (stream != kNoStream && blocks.stream() != stream)) continue;
    release(blocks.dismiss(into));
    ids_[i] = StreamPort::Id{};
  }
}

bool ThreadCache::has(StreamIndex stream) const {
  for (std::size_t i = 0; i < places_; ++i) {
    const StreamIndex own = of_streams_[i]->stream();
    if (stream == kNoStream ? own != kNoStream : own == stream) return true;
  }
  return false;
}

// ---- Bins ----

template <class Self, class Visit>
void ThreadCache::for_each(Self& self, Visit visit) {
  visit(self.legacy_);
  for (std::size_t i = 0; i < self.places_; ++i) visit(*self.of_streams_[i]);
}

Address ThreadCache::take_locked(CachedBlocks& blocks, std::uint64_t bytes, std::uint32_t now) {
  while (blocks.count(class_of(bytes)) != 0) {
    if (const Address address = blocks.pop(bytes, now)) return address;
  }
  return 0;
}

std::size_t ThreadCache::refill_count(const CachedBlocks& blocks, ClassIndex size_class) const {
  if (blocks.is_open(size_class)) return (blocks.capacity(size_class) + 1) / 2;
  const std::size_t capacity = capacity_for(size_class);
  return granted_ + capacity * kClassBytes[size_class] > budget_ ? 0 : (capacity + 1) / 2;
}

std::size_t ThreadCache::capacity_for(ClassIndex size_class) const {
  return std::min<std::size_t>(CachedBlocks::capacity_of(size_class), budget_ / kClassBytes[size_class]);
}

bool ThreadCache::open_bin(CachedBlocks& blocks, ClassIndex size_class, CacheSink& into) {
  if (blocks.is_open(size_class)) return true;
  if (size_class == kNoClass) {
    blocks.open(kNoClass, 1);
    return true;
  }
  const std::size_t capacity = capacity_for(size_class);
  if (capacity == 0) return false;
  if (granted_ + capacity * kClassBytes[size_class] > budget_) {
    if (++misses_ < kMissesBeforeRebalance) return false;
    flush(into);  // the classes that are in use will ask for capacity again
  }
  granted_ += capacity * kClassBytes[size_class];
  blocks.open(size_class, capacity);
  return true;
}

void ThreadCache::flush(CacheSink& into) {
  for_each(*this, [&](CachedBlocks& blocks) { release(blocks.flush(into)); });
  misses_ = 0;
}

void ThreadCache::flush_large(CacheSink& into) {
  for_each(*this, [&](CachedBlocks& blocks) { blocks.flush_large(into); });
}

bool ThreadCache::has_large() const {
  bool any = false;
  for_each(*this, [&](const CachedBlocks& blocks) { any |= blocks.count(kNoClass) != 0; });
  return any;
}

void ThreadCache::flush_aged(int ticks, CacheSink& into) {
  for_each(*this, [&](CachedBlocks& blocks) {
    if (blocks.idle_ticks() >= ticks) release(blocks.flush(into));
  });
}

void ThreadCache::stop(std::span<const std::shared_ptr<ThreadCache>> caches) {
  bool were_running = false;
  for (const auto& cache : caches) were_running |= !cache->stopped_.exchange(true, std::memory_order_seq_cst);
  if (!were_running) return;
  if (kPlainFences && !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {  // seccomp forbids it now
    barriers.store(Barriers::kUnavailable, std::memory_order_release);
    std::this_thread::sleep_for(kStoresTake);
  }
  for (const auto& cache : caches) {
    while (cache->busy_.load(std::memory_order_seq_cst)) std::this_thread::yield();
  }
}

std::uint64_t ThreadCache::bytes() const {
  std::uint64_t sum = 0;
  for_each(*this, [&](const CachedBlocks& blocks) { sum += blocks.bytes(); });
  return sum;
}

std::uint64_t ThreadCache::hits(ClassIndex size_class) const {
  std::uint64_t sum = 0;
  for_each(*this, [&](const CachedBlocks& blocks) { sum += blocks.hits(size_class); });
  return sum;
}

bool ThreadCache::age(int ticks) {
  bool any = false;
  for_each(*this, [&](CachedBlocks& blocks) { any |= blocks.age() >= ticks && blocks.bytes() != 0; });
  return any;
}

}  // namespace gpumem::allocator
