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

// Bytes and blocks that one class may hold in one cache: enough for a batch, too few to be missed elsewhere.
constexpr std::uint64_t kSlotBytes = kibibytes(64).count;
constexpr std::uint64_t kSpanBytes = mebibytes(1).count;
constexpr std::size_t kMostBlocks = 128;
// Bins are reassigned when so many blocks have found no capacity.
constexpr int kMissesBeforeRebalance = 256;
constexpr std::size_t kLeastSlots = 8;
// Far longer than a processor keeps a store to itself (microseconds).
constexpr std::chrono::milliseconds kStoresTake{20};

constexpr std::size_t capacity_of(ClassIndex size_class) {
  const bool slots = size_class < kSlotClasses;
  const std::uint64_t fit = (slots ? kSlotBytes : kSpanBytes) / kClassBytes[size_class];
  return std::clamp<std::size_t>(fit, slots ? kLeastSlots : 1, kMostBlocks);
}

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

ThreadCache::ThreadCache(std::shared_ptr<EngineRef> engine, CacheNumber number)
    : cached_(BlockWord::cached(number)), engine_ref_(std::move(engine)) {}

void ThreadCache::retire() {
  const std::scoped_lock lock(engine_ref_->mutex);
  if (engine_ref_->engine != nullptr) engine_ref_->engine->retire(*this);
}

Address ThreadCache::take_locked(std::uint64_t bytes, std::uint32_t now) {
  const Bin& bin = bins_[class_of(bytes)];
  while (bin.count() != 0) {
    if (const Address address = pop(bytes, now)) return address;
  }
  return 0;
}

// For a block that another cache handed out, that has another stream or a tag, or that is freed without its
// size. Another thread may free it at the same time. A block with recorded streams waits for these first.
bool ThreadCache::claim(Slot& slot, std::uint64_t bytes, bool of_any_stream) {
  const BlockWord word = slot.get();
  if (word.state() != BlockWord::kUsed || word.has_recorded_streams()) return false;
  if (!of_any_stream && word.stream() != handed_out_.stream()) return false;
  if (bytes != kUnknownSize.count && bytes != word.bytes()) return false;
  std::uint64_t expected = word.bits();
  return slot.word.compare_exchange_strong(expected, cached_.bits(), std::memory_order_relaxed);
}

void ThreadCache::use(StreamIndex legacy, std::uint64_t budget) {
  handed_out_ = BlockWord::used(legacy, 0, number());
  budget_ = budget;
}

std::size_t ThreadCache::capacity_for(ClassIndex size_class) const {
  return std::min<std::size_t>(capacity_of(size_class), budget_ / kClassBytes[size_class]);
}

std::size_t ThreadCache::refill_count(ClassIndex size_class) const {
  const Bin& bin = bins_[size_class];
  if (bin.capacity() != 0) return (bin.capacity() + 1) / 2;
  const std::size_t capacity = capacity_for(size_class);
  return granted_ + capacity * kClassBytes[size_class] > budget_ ? 0 : (capacity + 1) / 2;
}

void ThreadCache::refill(ClassIndex size_class, const std::vector<Block>& blocks) {
  open_bin(size_class, nullptr);
  for (const Block& block : blocks) block.slot->set(cached_);
  std::atomic<Block*>& top = bins_[size_class].top;
  top.store(std::ranges::copy(blocks, top.load(std::memory_order_relaxed)).out, std::memory_order_relaxed);
}

bool ThreadCache::open_bin(ClassIndex size_class, const FlushTarget& into) {
  Bin& bin = bins_[size_class];
  if (bin.capacity() != 0) return true;
  const std::size_t capacity = capacity_for(size_class);
  if (capacity == 0) return false;
  if (granted_ + capacity * kClassBytes[size_class] > budget_) {
    if (++misses_ < kMissesBeforeRebalance) return false;
    flush(into);  // the classes that are in use will ask for capacity again
  }
  granted_ += capacity * kClassBytes[size_class];
  if (!bin.floor) bin.floor = std::make_unique<Block[]>(capacity_of(size_class));
  bin.top.store(bin.floor.get(), std::memory_order_relaxed);
  bin.ceiling = bin.floor.get() + capacity;
  return true;
}

void ThreadCache::take_older(ClassIndex size_class, std::vector<Block>& into) {
  Bin& bin = bins_[size_class];
  remove_oldest(bin, (bin.capacity() + 1) / 2, [&into](const Block& block) {
    block.slot->set(BlockWord::cached(kInBatch));  // a second entry of the block here is none any more
    into.push_back(block);
  });
}

// The oldest blocks go, because the youngest are most likely in the device's caches.
template <class Into>
void ThreadCache::remove_oldest(Bin& bin, std::size_t count, Into&& into) {
  const std::size_t had = bin.count();
  const std::size_t goes = std::min(count, had);
  for (std::size_t i = 0; i < goes; ++i) {
    if (bin.floor[i].slot->get() == cached_) into(bin.floor[i]);
  }
  Block* const floor = bin.floor.get();
  std::move(floor + goes, floor + had, floor);
  bin.top.store(floor + (had - goes), std::memory_order_relaxed);
}

void ThreadCache::flush(const FlushTarget& into) {
  for (Bin& bin : bins_) {
    remove_oldest(bin, kMostBlocks, into);
    bin.ceiling = bin.floor.get();
  }
  granted_ = 0;
  misses_ = 0;
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
  for (ClassIndex i = 0; i < kClasses; ++i) sum += bins_[i].count() * kClassBytes[i];
  return sum;
}

int ThreadCache::age() {
  std::uint64_t uses = bytes();
  for (ClassIndex i = 0; i < kClasses; ++i) uses += hits(i);
  idle_ticks_ = uses == uses_ ? idle_ticks_ + 1 : 0;
  uses_ = uses;
  return idle_ticks_;
}

}  // namespace gpumem::allocator
