#include "client/allocator/thread_caches.h"

#include <algorithm>

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
  auto place = caches_.begin();  // the first number that is free
  CacheNumber free = 1;
  for (; place != caches_.end() && (*place)->number() == free; ++place) ++free;
  auto made = std::make_shared<ThreadCache>(engine, free);
  if (stopped_) ThreadCache::stop({&made, 1});
  caches_.insert(place, made);
  ThreadTable::set(number.get(), made);
  return made.get();
}

void ThreadCaches::retire(ThreadCache& cache) {
  flush(&cache);  // and the batches, which nobody may come to use
  for (ClassIndex i = 0; i < kClasses; ++i) hits_[i] += cache.hits(i);
  std::erase_if(caches_, [&cache](const auto& one) { return one.get() == &cache; });
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

void ThreadCaches::flush(ThreadCache* cache) {
  if (cache != nullptr) cache->flush(into_);
  for (std::vector<Block>& batch : batches_) {
    for (const Block& block : batch) into_(block);
    batch.clear();
  }
  batch_bytes_ = 0;
}

void ThreadCaches::flush() {
  flush_stopped(caches_);
  flush(nullptr);
}

// The calling thread is outside its own cache here, so that cache is stopped like the others.
void ThreadCaches::flush_stopped(const Caches& caches) {
  ThreadCache::stop(caches);
  for (const auto& cache : caches) {
    cache->flush(into_);
    if (!stopped_) cache->resume();
  }
}

void ThreadCaches::age(int ticks) {
  Caches aged;
  for (const auto& cache : caches_) {
    if (cache->age() >= ticks && cache->bytes() != 0) aged.push_back(cache);
  }
  flush_stopped(aged);
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
