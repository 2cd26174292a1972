#include <algorithm>
#include <utility>

#include "client/allocator/engine.h"
#include "client/fork_guard.h"

// Returns idle memory, trims and closes.

namespace gpumem::allocator {

void Engine::background_tick(Clock::time_point now) {
  std::vector<Extent> idle;
  Bytes used;
  std::shared_ptr<Backing> backing;
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return;
    backing = backing_;
    seconds_.store(
        static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(now - begun_).count()),
        std::memory_order_relaxed);
    if (idle_.is_due(now)) {
      age_caches();
      poll_all();
      const std::uint64_t low = heap_.take_low_water() + extents_.spare().count;
      if (const std::uint64_t unneeded = idle_.tick(now, low); unneeded != 0) {
        idle = extents_.take_free_within(unneeded);
      }
      counters_.given_back += idle.size();
    }
    used = {heap_.used_bytes()};
  }
  backing->publish(used);
  if (!idle.empty()) backing->give_back(std::move(idle));
}

// Flushes caches that their threads have not used for some ticks. Their blocks have been idle for as long.
void Engine::age_caches() {
  std::vector<ThreadCache*> aged;
  for (Cached& cached : caches_) {
    const std::uint64_t uses = cached.cache->uses();
    cached.idle_ticks = uses == cached.uses ? cached.idle_ticks + 1 : 0;
    cached.uses = uses;
    if (cached.idle_ticks >= IdleTracker::kCacheTicks && cached.cache->bytes() != 0)
      aged.push_back(cached.cache.get());
  }
  flush_stopped(aged);
}

Bytes Engine::surplus() const {
  const MutexLock lock(lock_);
  Bytes sum = extents_.returnable();
  for (const Cached& cached : caches_) sum += {cached.cache->bytes()};
  return sum;
}

Result<Bytes> Engine::trim(Bytes bytes) {
  auto given = trim_unused(bytes);
  if (!given || *given >= bytes || closing_.load() != 0) return given;
  wait_for_all();
  return *given + trim_now(bytes.minus(*given));
}

Result<Bytes> Engine::trim_unused(Bytes bytes) {
  if (auto can = usable(); !can) return can.error();
  if (closing_.load() != 0) return Bytes{};  // who closes gives everything back
  return trim_now(bytes);
}

Bytes Engine::trim_now(Bytes bytes) {
  std::shared_ptr<Backing> backing;
  std::vector<Extent> extents;
  Bytes given;
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return {};
    backing = backing_;
    flush_caches();
    poll_all();
    extents = extents_.take_free(bytes.count);
    for (const Extent& extent : extents) given += extent.size;
    counters_.given_back += extents.size();
  }
  if (!extents.empty()) backing->give_back(std::move(extents));
  return given;
}

Result<void> Engine::release_stream(StreamHandle stream) {
  if (auto can = usable(); !can) return can;
  const MutexLock lock(lock_);
  if (closed_.load()) return is_closed();
  return streams_.forget(stream);
}

void Engine::retire(ThreadCache& cache) {
  const MutexLock lock(lock_);
  if (closed_.load()) return;
  cache.flush(flush_target());
  for (ClassIndex i = 0; i < kClasses; ++i) counters_.hits[i] += cache.hits(i);
  std::erase_if(caches_, [&cache](const Cached& cached) { return cached.cache.get() == &cache; });
}

// ---- Closing ----

Result<void> Engine::close() {
  if (auto can = usable(); !can) return can;
  return shut_down(true);
}

Result<void> Engine::end() {
  if (auto can = usable(); !can) return can;
  return shut_down(false);
}

// The caches stay stopped for good, so every later call takes the lock and sees closed_.
Result<void> Engine::shut_down(bool only_unused) {
  std::vector<Streams::Awaited> awaited;
  std::shared_ptr<StreamPort> waited_on;
  std::uint64_t left = 0;
  closing_.fetch_add(1);
  {
    const MutexLock lock(lock_);
    closing_.fetch_sub(1);
    if (closed_.load()) return is_closed();
    waited_on = port_;
    flush_caches();
    std::vector<ThreadCache*> caches;
    for (const Cached& cached : caches_) caches.push_back(cached.cache.get());
    ThreadCache::stop(caches);
    if (left = blocks_in_use(); only_unused && left != 0) {
      for (ThreadCache* cache : caches) {
        if (!is_waited_for()) cache->resume();
      }
      return Error{Code::kFailedPrecondition,
                   std::to_string(left) + (left == 1 ? " block is" : " blocks are") +
                       " still in use; free them, or destroy the allocator with them"};
    }
    closed_.store(true);
    if (growing_ != nullptr) growing_->stop.request_stop();
    changed_.notify_all();
    number_.release();
    std::vector<StreamIndex> streams;
    for (std::size_t i = 1; i < streams_.count(); ++i) streams.push_back(static_cast<StreamIndex>(i));
    awaited = marks_of(streams);
  }
  {
    const std::scoped_lock lock(engine_ref_->mutex);
    engine_ref_->engine = nullptr;
  }
  if (background_task_) background_task_->end();
  attachment_.reset();
  wait_for(std::move(awaited), *waited_on);
  // Work of any stream may use these blocks, and their own streams may have ended.
  if (left != 0) waited_on->wait_for_context();
  std::shared_ptr<Backing> backing;
  std::shared_ptr<StreamPort> port;
  std::vector<Extent> all;
  Bytes kept;
  {
    const MutexLock lock(lock_);
    while (growing_ != nullptr || is_waited_for()) changed_.wait(lock_);
    all = extents_.take_all();
    kept = extents_.committed();
    map_.clear();
    streams_.drop_marks();
    backing.swap(backing_);
    port.swap(port_);
  }
  backing->publish({});
  if (!all.empty()) backing->give_back(std::move(all));
  if (kept.is_zero()) return {};
  return Error{Code::kInternal, "the allocator is closed, but the driver keeps " + to_string(kept) +
                                    " mapped; they go back when the session ends"};
}

}  // namespace gpumem::allocator
