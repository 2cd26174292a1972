#include "client/allocator/thread_caches.h"

#include <algorithm>

#include "client/allocator/idle_tracker.h"

namespace gpumem::allocator {
namespace {

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

ThreadCache* ThreadCaches::add(const AllocatorNumber& number,
                               const std::shared_ptr<ThreadCache::EngineRef>& engine) {
  std::vector<bool> taken(caches_.size() + 2);
  for (const Cached& cached : caches_) {
    if (cached.cache->number() < taken.size()) taken[cached.cache->number()] = true;
  }
  CacheNumber free = 1;
  while (taken[free]) ++free;
  auto made = std::make_shared<ThreadCache>(engine, free);
  ThreadCache* const cache = made.get();
  if (stopped_) ThreadCache::stop({&cache, 1});
  caches_.push_back({made});
  ThreadTable::set(number.get(), std::move(made));
  return cache;
}

void ThreadCaches::retire(ThreadCache& cache) {
  flush(cache);
  flush_batches();  // nobody may come to use them
  for (ClassIndex i = 0; i < kClasses; ++i) hits_[i] += cache.hits(i);
  std::erase_if(caches_, [&cache](const Cached& cached) { return cached.cache.get() == &cache; });
}

void ThreadCaches::use(ThreadCache& cache, StreamIndex legacy, std::uint64_t committed) {
  cache.use(legacy, std::clamp(committed / kCachePart, kLeastCache, kMostCache));
  batch_budget_ = std::max(kLeastBatches, committed / kBatchPart);
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

bool ThreadCaches::make_space(ThreadCache& cache, ClassIndex size_class) {
  if (!cache.open_bin(size_class, into_)) return false;
  if (!cache.is_full(size_class)) return true;
  std::vector<Block>& batch = batches_[size_class];
  const std::size_t had = batch.size();
  cache.take_older(size_class, batch);
  batch_bytes_ += (batch.size() - had) * kClassBytes[size_class];
  idle_ticks_ = 0;
  while (batch.size() > had && (batch.size() > kMostBatched || batch_bytes_ > batch_budget_)) {
    const Block block = batch.back();
    batch.pop_back();
    batch_bytes_ -= kClassBytes[size_class];
    into_(block);
  }
  return true;
}

void ThreadCaches::flush_batches() {
  for (std::vector<Block>& batch : batches_) {
    for (const Block& block : batch) into_(block);
    batch.clear();
  }
  batch_bytes_ = 0;
}

std::vector<ThreadCache*> ThreadCaches::all() const {
  std::vector<ThreadCache*> all;
  for (const Cached& cached : caches_) all.push_back(cached.cache.get());
  return all;
}

void ThreadCaches::flush() {
  flush_stopped(all());
  flush_batches();
}

// The calling thread is outside its own cache here, so that cache is stopped like the others.
void ThreadCaches::flush_stopped(const std::vector<ThreadCache*>& caches) {
  ThreadCache::stop(caches);
  for (ThreadCache* cache : caches) {
    flush(*cache);
    if (!stopped_) cache->resume();
  }
}

void ThreadCaches::age() {
  std::vector<ThreadCache*> aged;
  for (Cached& cached : caches_) {
    const std::uint64_t uses = cached.cache->uses();
    cached.idle_ticks = uses == cached.uses ? cached.idle_ticks + 1 : 0;
    cached.uses = uses;
    if (cached.idle_ticks >= IdleTracker::kCacheTicks && cached.cache->bytes() != 0)
      aged.push_back(cached.cache.get());
  }
  flush_stopped(aged);
  if (++idle_ticks_ > IdleTracker::kCacheTicks) flush_batches();
}

void ThreadCaches::stop() {
  stopped_ = true;
  flush();
}

void ThreadCaches::resume() {
  stopped_ = false;
  for (const Cached& cached : caches_) cached.cache->resume();
}

std::uint64_t ThreadCaches::bytes() const {
  std::uint64_t sum = batch_bytes_;
  for (const Cached& cached : caches_) sum += cached.cache->bytes();
  return sum;
}

std::uint64_t ThreadCaches::hits(ClassIndex size_class) const {
  std::uint64_t sum = hits_[size_class];
  for (const Cached& cached : caches_) sum += cached.cache->hits(size_class);
  return sum;
}

}  // namespace gpumem::allocator
