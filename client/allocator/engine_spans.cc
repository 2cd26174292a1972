#include <algorithm>

#include "base/check.h"
#include "client/allocator/engine.h"

// From a request for memory to a span: local free memory first, then the backing.

namespace gpumem::allocator {
namespace {

// The largest extent, as a part of what is committed, so that one block keeps little memory.
constexpr std::uint64_t kExtentPart = 1024;
// But at least this part of the growth, because many small extents cost many driver calls. Those of a large
// growth may be larger: no small block comes to lie in them.
constexpr std::uint64_t kGrowthPart = 8;
constexpr std::uint64_t kLargeGrowthPart = 2;
constexpr std::uint64_t kLargeGrowth = mebibytes(32).count;
// A growth requests up to this part of what is committed, even if less is missing.
constexpr std::uint64_t kBatchPart = 512;
// Each round waits for all streams. Other threads may add work without end, so the rounds are bounded.
constexpr int kMostRounds = 4;
// Longer than any real wait, and short enough to be added to a point in time.
constexpr std::chrono::hours kLongestWait{24 * 365};

}  // namespace

Result<Span*, GrowError> Engine::satisfy(const Need& need, ThreadCache* cache) {
  const auto deadline = Clock::now() + std::min<std::chrono::milliseconds>(need.wait, kLongestWait);
  Waiter waiter{.bytes = need.bytes};
  std::optional<GrowError> refused;
  bool last_resort = false;
  for (bool last_look = false;;) {
    {
      const MutexLock lock(lock_);
      auto done = satisfy_locally(need, cache);
      if (!done || *done != nullptr || last_look) {
        leave(waiter);
        return !done || *done != nullptr ? done : *refused;
      }
      if (last_resort && refused && !waiter.waits && need.wait.count() > 0) begin_to_wait(waiter);
      if (!take_turn(waiter, deadline)) {
        last_look = waiter.waits && Clock::now() >= deadline;
        if (last_look) refused->code = Code::kDeadlineExceeded;
        continue;
      }
    }
    auto obtained = obtain(need, waiter, deadline);
    end_turn();
    if (obtained || obtained.error().code == Code::kCancelled) continue;
    refused = obtained.error();
    if (last_resort) {
      last_look = waiter.waits || need.wait.count() <= 0;
    } else {  // flush all caches, wait for the device, open the units for small blocks
      last_resort = true;
      refused.reset();
      wait_for_all();
      const MutexLock lock(lock_);
      heap_.open_units();
    }
  }
}

bool Engine::take_turn(Waiter& waiter, Clock::time_point deadline) {
  const auto may_grow = [&]() GPUMEM_REQUIRES(lock_) {
    return growing_ == nullptr && (!waiter.waits || askers_ == 0);
  };
  askers_ += waiter.waits ? 0 : 1;
  while (!closed_.load() && !std::exchange(waiter.woken, false)) {
    if (may_grow()) {
      askers_ -= waiter.waits ? 0 : 1;
      waiter.stop = {};
      growing_ = &waiter;
      return true;
    }
    if (!waiter.waits) {
      if (growing_ != nullptr && growing_->waits) growing_->stop.request_stop();
      changed_.wait(lock_);
    } else if (Clock::now() < deadline) {
      changed_.wait_until(lock_, deadline);
    } else {
      break;
    }
  }
  askers_ -= waiter.waits ? 0 : 1;
  changed_.notify_all();
  return false;
}

void Engine::end_turn() {
  const MutexLock lock(lock_);
  growing_ = nullptr;
  changed_.notify_all();
}

bool Engine::is_waited_for() const { return !waiters_.empty(); }

// From now on, until nobody waits, no block goes into a cache, where the waiter would not see it.
void Engine::begin_to_wait(Waiter& waiter) {
  waiter.waits = true;
  waiters_.push_back(&waiter);
  flush_caches();
}

void Engine::leave(Waiter& waiter) {
  if (std::erase(waiters_, &waiter) == 0) return;
  changed_.notify_all();
  if (is_waited_for() || closed_.load()) return;
  for (const Cached& cached : caches_) cached.cache->resume();
}

void Engine::wake_waiters() {
  const std::uint64_t free = heap_.free_bytes() + extents_.spare().count;
  for (Waiter* waiter : waiters_) {
    if (waiter->bytes > free) continue;
    waiter->woken = true;
    waiter->stop.request_stop();
  }
  if (is_waited_for()) changed_.notify_all();
}

Result<Span*, GrowError> Engine::satisfy_locally(const Need& need, ThreadCache* cache) {
  if (closed_.load()) return GrowError(is_closed());
  Span* span = take_for(need);
  if (span == nullptr) {
    poll_all();
    if (need.kind == Need::Kind::kAfter &&
        !extents_.can_make_span_after(*need.block, need.bytes, need.stream)) {
      return GrowError(
          {Code::kAborted, "something else lies behind the block; give blocks that are to grow room"});
    }
    span = take_for(need);
  }
  if (span == nullptr) span = take_from_other_streams(need);
  if (span == nullptr) {
    std::uint64_t missing = missing_for(need);
    if (missing != 0 && cache != nullptr && cache->bytes() != 0) {
      cache->flush(flush_target());
      poll_all();
      span = take_for(need);
      missing = span == nullptr ? missing_for(need) : 0;
    }
    if (span == nullptr && missing == 0) {
      if (auto made = make_span_for(need); !made) return GrowError(made.error());
      span = take_for(need);
      GPUMEM_CHECK(span != nullptr, "what was made can be taken");
    }
  }
  counters_.peak_used = std::max(counters_.peak_used, heap_.used_bytes());
  return span;
}

Span* Engine::take_for(const Need& need) {
  switch (need.kind) {
    case Need::Kind::kSpan: return heap_.take(need.bytes, Cut::kSpan, need.stream);
    case Need::Kind::kSlab: return heap_.take(need.bytes, Cut::kSlab, need.stream);
    case Need::Kind::kAfter: return take_after(need);
    case Need::Kind::kRoom: break;
  }
  Span* span = heap_.beginning_at(need.at);
  return span == nullptr ? nullptr : heap_.take_whole(*span);
}

Span* Engine::take_after(const Need& need) {
  const Span* after = need.block->after;
  if (after == nullptr || (after->stream != kNoStream && after->stream != need.stream)) return nullptr;
  if (after->bytes < need.bytes) return nullptr;
  const bool all = need.block->room_end != 0;  // no other block may lie in the room
  return heap_.widen(*need.block, all ? after->bytes : need.bytes) ? need.block : nullptr;
}

// Free spans of other streams, ordered behind the work that may still use them: first one span that is large
// enough, else all of them, which may merge with their neighbours into a span that is.
Span* Engine::take_from_other_streams(const Need& need) {
  if (need.kind != Need::Kind::kSpan && need.kind != Need::Kind::kSlab) return nullptr;
  const Cut cut = need.kind == Need::Kind::kSlab ? Cut::kSlab : Cut::kSpan;
  const auto streams = heap_.streams();
  for (const StreamIndex other : streams) {
    if (other == need.stream) continue;
    Span* fits = heap_.fit(need.bytes, cut, other);
    if (fits == nullptr || !streams_.order(need.stream, other, fits->epoch)) continue;
    return heap_.take_of(*fits, need.bytes, cut);
  }
  if (heap_.free_bytes() < need.bytes) return nullptr;
  Span* found = nullptr;
  bool adopted = false;
  for (const StreamIndex other : streams) {
    if (other == need.stream || !streams_.order(need.stream, other, streams_.last_free(other))) continue;
    heap_.adopt(other, need.stream, streams_.epoch(need.stream));
    adopted = true;
    if (found = take_for(need); found != nullptr) break;
  }
  if (adopted) streams_.freed(need.stream);
  return found;
}

// A whole unit has space for a slab at any alignment.
std::uint64_t Engine::missing_for(const Need& need) const {
  switch (need.kind) {
    case Need::Kind::kSpan: return extents_.missing_for(need.bytes, need.stream);
    case Need::Kind::kSlab: return extents_.missing_for(unit_, need.stream);
    case Need::Kind::kAfter: return extents_.missing_after(*need.block, need.bytes, need.stream);
    case Need::Kind::kRoom: break;
  }
  return extents_.missing_at(need.bytes, need.room);
}

Result<void> Engine::make_span_for(const Need& need) {
  switch (need.kind) {
    case Need::Kind::kSpan: return extents_.make_span(need.bytes, need.stream);
    case Need::Kind::kSlab: return extents_.make_span(unit_, need.stream);
    case Need::Kind::kAfter: return extents_.make_span_after(*need.block, need.bytes, need.stream);
    case Need::Kind::kRoom: break;
  }
  return extents_.make_span_at(need.at, need.bytes, need.room);
}

// ---- Work that the device has finished ----

void Engine::poll_all() {
  auto streams = streams_.with_marks();
  const StreamIndex legacy = streams_.legacy();
  const auto contains = [legacy](const auto& all) { return std::ranges::find(all, legacy) != all.end(); };
  if (!contains(streams) && (contains(heap_.streams()) || contains(awaited_streams())))
    streams.push_back(legacy);
  for (const StreamIndex stream : streams) {
    if (const auto epoch = streams_.poll(stream)) settle(stream, *epoch);
  }
}

void Engine::settle(StreamIndex stream, std::uint64_t epoch) {
  streams_.note_reached(stream, epoch);
  heap_.settle(stream, epoch);
  for (Span* slab : slab_bins_.settle(stream, epoch)) free_span(*slab, slab->stream, slab->epoch);
  free_held();
}

// No work of these streams is pending, so their slabs can serve any stream.
void Engine::retire_idle_streams() {
  poll_all();
  std::vector<bool> idle(streams_.count());
  for (std::size_t i = 1; i < idle.size(); ++i) idle[i] = streams_.is_idle(static_cast<StreamIndex>(i));
  heap_.each_slab([this, &idle](Span& slab) GPUMEM_THREAD(no_thread_safety_analysis) {
    if (idle[slab.stream]) slab_bins_.clear_stream(slab);
  });
  for (std::size_t i = 1; i < idle.size(); ++i) {
    if (idle[i]) streams_.retire(static_cast<StreamIndex>(i));
  }
}

// A deferred free of one stream may complete a slab of another stream. So this repeats until there is nothing
// left to wait for.
void Engine::wait_for_all() {
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<Streams::Awaited> awaited;
    std::shared_ptr<StreamPort> port;  // of the marks, even if the engine is closed meanwhile
    {
      const MutexLock lock(lock_);
      if (closed_.load()) return;
      port = port_;
      flush_caches();
      auto streams = heap_.streams();
      for (const StreamIndex stream : slab_bins_.streams_with_deferred()) streams.push_back(stream);
      for (const StreamIndex stream : awaited_streams()) streams.push_back(stream);
      awaited = marks_of(streams);
    }
    if (awaited.empty()) return;
    wait_for(std::move(awaited), *port);
  }
}

std::vector<Streams::Awaited> Engine::marks_of(const std::vector<StreamIndex>& streams) {
  std::vector<Streams::Awaited> marks;
  for (const StreamIndex stream : streams) {
    if (auto mark = streams_.await(stream)) marks.push_back(std::move(*mark));
  }
  return marks;
}

void Engine::wait_for(std::vector<Streams::Awaited> awaited, StreamPort& port) {
  for (Streams::Awaited& one : awaited) {
    const bool done = port.wait(*one.mark).has_value();
    const MutexLock lock(lock_);
    one.mark.reset();
    if (done && backing_) settle(one.stream, one.epoch);
  }
}

void Engine::flush_caches() {
  std::vector<ThreadCache*> all;
  for (const Cached& cached : caches_) all.push_back(cached.cache.get());
  flush_stopped(all);
}

// The calling thread is outside its own cache here, so that cache is stopped like the others.
void Engine::flush_stopped(const std::vector<ThreadCache*>& caches) {
  ThreadCache::stop(caches);
  for (ThreadCache* cache : caches) {
    cache->flush(flush_target());
    if (!is_waited_for()) cache->resume();
  }
}

// ---- Growing ----

Result<void, GrowError> Engine::obtain(const Need& need, const Waiter& waiter, Clock::time_point deadline) {
  Backing::Request request;
  std::shared_ptr<Backing> backing;
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return {};  // the next satisfy_locally() reports it
    backing = backing_;
    const std::uint64_t missing = missing_for(need);
    if (missing == 0) return {};
    request = request_for(missing);
    if (need.kind == Need::Kind::kAfter || need.kind == Need::Kind::kRoom) request.most = request.least;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (waiter.waits) request.wait = std::max(left, std::chrono::milliseconds::zero());
    request.stop = waiter.stop.get_token();
  }
  auto lent = backing->obtain(request);
  const MutexLock lock(lock_);
  if (!lent) {
    counters_.refused += lent.error().code == Code::kCancelled ? 0 : 1;
    return lent.error();
  }
  add_extents(std::move(*lent));
  ++counters_.growths;
  return {};
}

void Engine::add_extents(std::vector<Extent> lent) {
  extents_.add(std::move(lent));
  counters_.peak_committed = std::max(counters_.peak_committed, extents_.committed());
}

Backing::Request Engine::request_for(std::uint64_t missing) const {
  const auto units = [this](std::uint64_t bytes) { return std::max(bytes / unit_ * unit_, unit_); };
  const std::uint64_t committed = extents_.committed().count;
  const std::uint64_t left = limit_.minus(extents_.committed()).count / unit_ * unit_;
  Backing::Request request;
  request.least = {missing};
  request.most = {std::max(missing, std::min(units(committed / kBatchPart), left))};
  const std::uint64_t part = missing < kLargeGrowth ? kGrowthPart : kLargeGrowthPart;
  request.largest = {units(std::max((committed + missing) / kExtentPart, missing / part))};
  return request;
}

}  // namespace gpumem::allocator
