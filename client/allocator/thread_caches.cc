#include "client/allocator/thread_caches.h"

#include <algorithm>
#include <utility>

#include "client/allocator/thread_cache.h"

namespace gpumem::allocator {
namespace {

/// Whether an allocator has the number. Without a lock, which a forked child might find locked for ever.
constinit std::array<std::atomic<bool>, ThreadTable::kSize> taken{};

// The part of committed memory that one thread's cache may hold.
constexpr std::uint64_t kCachePart = 128;
constexpr std::uint64_t kLeastCache = mebibytes(1).count;
constexpr std::uint64_t kMostCache = mebibytes(4).count;
// And all batches, which are flushed before other memory is looked for; so many blocks of a class at most, so
// that this takes little time.
constexpr std::uint64_t kBatchPart = 2;
constexpr std::uint64_t kLeastBatches = mebibytes(4).count;
constexpr std::size_t kMostBatched = 1024;

}  // namespace

constinit thread_local ThreadTable* ThreadTable::current_ = nullptr;

pthread_key_t ThreadTable::prepare() {
  static pthread_key_t key;
  static const int kPrepared = [] {
    ::pthread_atfork(nullptr, nullptr, [] { current_ = nullptr; });
    return ::pthread_key_create(&key, &ThreadTable::end);
  }();
  (void)kPrepared;  // without a key, other threads flush the caches of a thread that has ended
  return key;
}

ThreadTable& ThreadTable::own() {
  const pthread_key_t key = prepare();
  if (current_ == nullptr) {
    static std::atomic<std::uint64_t> next{1};
    current_ = new ThreadTable;
    current_->number_ = next.fetch_add(1);
    ::pthread_setspecific(key, current_);
  }
  return *current_;
}

ThreadTable& ThreadTable::of_ending_threads() {
  static auto* const kEnding = new ThreadTable;  // used until the process ends
  return *kEnding;
}

bool ThreadTable::is_ending() { return current_ == &of_ending_threads(); }

// Runs while the thread ends. The thread may still free blocks after this, without a cache.
void ThreadTable::end(void* table) {
  auto* own = static_cast<ThreadTable*>(table);
  if (own != current_) return;  // of the process that this one was forked from
  for (auto& cache : own->caches_) {
    if (cache) cache->retire();
  }
  current_ = &of_ending_threads();
  delete own;
}

void ThreadTable::set(std::size_t number, std::shared_ptr<ThreadCache> cache) {
  own().caches_[number] = std::move(cache);
}

std::uint64_t ThreadTable::thread_number() { return own().number_; }

AllocatorNumber::AllocatorNumber() {
  for (std::size_t free = 1; free < ThreadTable::kSize; ++free) {  // 0 means none
    if (taken[free].exchange(true, std::memory_order_acq_rel)) continue;
    number_.store(free, std::memory_order_relaxed);
    return;
  }
}

void AllocatorNumber::release() {
  const std::size_t mine = number_.exchange(0, std::memory_order_relaxed);
  if (mine != 0) taken[mine].store(false, std::memory_order_release);
}

ThreadCache* ThreadCaches::add(const AllocatorNumber& number,
                               const std::shared_ptr<ThreadCache::EngineRef>& engine, StreamPort& port) {
  auto place = caches_.begin();  // the first number that is free
  CacheNumber free = 1;
  for (; place != caches_.end() && (*place)->number() == free; ++place) ++free;
  auto made = std::make_shared<ThreadCache>(engine, free, port);
  if (stopped_) ThreadCache::stop({&made, 1});
  caches_.insert(place, made);
  ThreadTable::set(number.get(), made);
  return made.get();
}

void ThreadCaches::retire(ThreadCache& cache) {
  flush(&cache);  // and the batches, which nobody may come to use
  cache.dismiss(kNoStream, into_);
  for (ClassIndex i = 0; i <= kClasses; ++i) hits_[i] += cache.hits(i);
  std::erase_if(caches_, [&cache](const auto& one) { return one.get() == &cache; });
}

CachedBlocks* ThreadCaches::use(ThreadCache& cache, StreamIndex stream, bool is_legacy,
                                std::uint64_t committed) {
  cache.set_budget(std::clamp(committed / kCachePart, kLeastCache, kMostCache));
  batch_budget_ = std::max(kLeastBatches, committed / kBatchPart);
  if (!is_legacy) return cache.find(stream);
  if (cache.legacy().stream() != stream) cache.legacy().assign(stream);
  return &cache.legacy();
}

void ThreadCaches::take(ClassIndex size_class, std::size_t most, std::vector<Block>& into) {
  std::vector<Block>& batch = batches_[size_class];
  const std::size_t count = std::min(most, batch.size());
  if (count == 0) return;
  into.insert(into.end(), batch.end() - static_cast<std::ptrdiff_t>(count), batch.end());
  batch.resize(batch.size() - count);
  batch_bytes_ -= count * kClassBytes[size_class];
  idle_ticks_ = 0;
}

bool ThreadCaches::make_space(ThreadCache& cache, CachedBlocks& blocks, ClassIndex size_class,
                              std::vector<Block>& surplus) {
  if (!cache.open_bin(blocks, size_class, into_)) return false;
  if (!blocks.is_full(size_class)) return true;
  if (size_class == kNoClass) return false;
  if (&blocks != &cache.legacy()) {
    blocks.take_older(size_class, surplus);
    return true;
  }
  std::vector<Block>& batch = batches_[size_class];
  const std::size_t had = batch.size();
  blocks.take_older(size_class, batch);
  batch_bytes_ += (batch.size() - had) * kClassBytes[size_class];
  idle_ticks_ = 0;
  while (batch.size() > had && (batch.size() > kMostBatched || batch_bytes_ > batch_budget_)) {
    const Block block = batch.back();
    batch.pop_back();
    batch_bytes_ -= kClassBytes[size_class];
    into_.free_cached(blocks.stream(), block);
  }
  return true;
}

void ThreadCaches::flush(ThreadCache* cache) {
  if (cache != nullptr) cache->flush(into_);
  for (std::vector<Block>& batch : batches_) {
    for (const Block& block : batch) into_.free_cached(kNoStream, block);
    batch.clear();
  }
  batch_bytes_ = 0;
}

// The calling thread is outside its own cache here, so that cache is stopped like the others.
template <class Act>
void ThreadCaches::for_stopped(const Caches& caches, Act act) {
  ThreadCache::stop(caches);
  for (const auto& cache : caches) {
    act(*cache);
    if (!stopped_) cache->resume();
  }
}

void ThreadCaches::flush() {
  for_stopped(caches_, [this](ThreadCache& cache) { cache.flush(into_); });
  flush(nullptr);
}

bool ThreadCaches::flush_large() {
  Caches having;
  for (const auto& cache : caches_) {
    if (cache->has_large()) having.push_back(cache);
  }
  for_stopped(having, [this](ThreadCache& cache) { cache.flush_large(into_); });
  return !having.empty();
}

void ThreadCaches::dismiss(StreamIndex stream) {
  Caches having;
  for (const auto& cache : caches_) {
    if (cache->has(stream)) having.push_back(cache);
  }
  for_stopped(having, [&](ThreadCache& cache) { cache.dismiss(stream, into_); });
}

void ThreadCaches::age(int ticks) {
  Caches aged;
  for (const auto& cache : caches_) {
    if (cache->age(ticks)) aged.push_back(cache);
  }
  for_stopped(aged, [&](ThreadCache& cache) { cache.flush_aged(ticks, into_); });
  if (++idle_ticks_ > ticks) flush(nullptr);
}

void ThreadCaches::stop() {
  stopped_ = true;
  flush();
}

void ThreadCaches::resume() {
  stopped_ = false;
  for (const auto& cache : caches_) cache->resume();
}

std::uint64_t ThreadCaches::bytes() const {
  std::uint64_t sum = batch_bytes_;
  for (const auto& cache : caches_) sum += cache->bytes();
  return sum;
}

std::uint64_t ThreadCaches::hits(ClassIndex size_class) const {
  std::uint64_t sum = hits_[size_class];
  for (const auto& cache : caches_) sum += cache->hits(size_class);
  return sum;
}

}  // namespace gpumem::allocator
