#include <algorithm>

#include "base/check.h"
#include "client/allocator/engine.h"

// From a request for memory to a span: local free memory first, then the backing.

namespace gpumem::allocator {
namespace {

// The largest extent, as a part of what is committed, so that one block keeps little memory.
constexpr std::uint64_t kExtentPart = 1024;
// But at least this part of the growth, because many small extents cost many driver calls.
constexpr std::uint64_t kGrowthPart = 8;
// A growth requests up to this part of what is committed, even if less is missing.
constexpr std::uint64_t kBatchPart = 512;
// Each round waits for all streams. Other threads may add work without end, so the rounds are bounded.
constexpr int kMostRounds = 4;

}  // namespace

Result<Span*, GrowError> Engine::satisfy(const Need& need, ThreadCache* cache) {
  const auto here = [&] {
    const MutexLock lock(lock_);
    return satisfy_locally(need, cache);
  };
  if (auto done = here(); !done || *done != nullptr) return done;
  const MutexLock turn(growing_);
  bool last_resort = false;
  for (auto wait = std::chrono::milliseconds::zero();;) {
    // Others may have grown meanwhile, or taken what was obtained for this.
    if (auto done = here(); !done || *done != nullptr) return done;
    auto obtained = obtain(need, wait);
    if (obtained) continue;
    if (!last_resort) {  // flush all caches, wait for the device, open the units for small blocks
      last_resort = true;
      wait_for_all();
      const MutexLock lock(lock_);
      heap_.open_units();
    } else if (wait < options_.wait) {
      wait = options_.wait;
    } else {
      return obtained.error();
    }
  }
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
      cache->flush(flush_target(), true);
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
  const std::uint64_t thread = ThreadTable::thread_number();
  const Cut cut = need.kind == Need::Kind::kSlab ? Cut::kSlab : Cut::kSpan;
  const auto streams = heap_.streams();
  for (const StreamIndex other : streams) {
    if (other == need.stream) continue;
    Span* fits = heap_.fit(need.bytes, cut, other);
    if (fits == nullptr || !streams_.order(need.stream, other, fits->epoch, thread)) continue;
    return heap_.take_of(*fits, need.bytes, cut);
  }
  if (heap_.free_bytes() < need.bytes) return nullptr;
  for (const StreamIndex other : streams) {
    if (other == need.stream || !streams_.order(need.stream, other, streams_.epoch(other), thread)) continue;
    heap_.adopt(other, need.stream, streams_.epoch(need.stream));
    if (Span* span = take_for(need)) return span;
  }
  return nullptr;
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
  const std::uint64_t thread = ThreadTable::thread_number();
  auto streams = heap_.streams();
  for (const StreamIndex forgotten : streams_.forgotten()) streams.push_back(forgotten);
  for (const StreamIndex stream : streams) {
    if (const auto epoch = streams_.poll(stream, thread)) settle(stream, *epoch);
  }
}

void Engine::settle(StreamIndex stream, std::uint64_t epoch) {
  streams_.note_reached(stream, epoch);
  heap_.settle(stream, epoch);
  for (Span* slab : slab_bins_.settle(stream, epoch)) free_span(*slab, slab->stream, slab->epoch);
  if (streams_.is_forgotten(stream) && epoch == streams_.epoch(stream)) retire_stream(stream);
}

// The stream's last mark, set when it was forgotten, has been reached. So no work of it is pending.
void Engine::retire_stream(StreamIndex stream) {
  SlabBins* bins = &slab_bins_;
  heap_.each_slab(stream, [bins](Span& slab) { bins->clear_stream(slab); });
  streams_.retire(stream);
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
      awaited = marks_of(streams);
    }
    if (awaited.empty()) return;
    wait_for(awaited, *port);
  }
}

std::vector<Streams::Awaited> Engine::marks_of(const std::vector<StreamIndex>& streams) {
  std::vector<Streams::Awaited> marks;
  for (const StreamIndex stream : streams) {
    if (auto mark = streams_.await(stream, ThreadTable::thread_number())) marks.push_back(*mark);
  }
  return marks;
}

void Engine::wait_for(const std::vector<Streams::Awaited>& awaited, StreamPort& port) {
  for (const Streams::Awaited& one : awaited) {
    const bool done = port.wait(one.mark).has_value();
    const MutexLock lock(lock_);
    port.drop(one.mark);
    if (done && backing_) settle(one.stream, one.epoch);
  }
}

void Engine::flush_caches(StreamIndex only) {
  std::vector<ThreadCache*> all;
  for (const Cached& cached : caches_) all.push_back(cached.cache.get());
  flush_stopped(all, only);
}

// The calling thread is outside its own cache here, so that cache is stopped like the others.
void Engine::flush_stopped(const std::vector<ThreadCache*>& caches, StreamIndex only) {
  const ThreadCache* own = ThreadTable::find(number_.get());
  ThreadCache::stop(caches);
  for (ThreadCache* cache : caches) {
    cache->flush(flush_target(), cache == own, only);
    if (only != kNoStream) cache->drop_stream(only);
    cache->resume();
  }
}

// ---- Growing ----

Result<void, GrowError> Engine::obtain(const Need& need, std::chrono::milliseconds wait) {
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
    request.wait = wait;
  }
  auto lent = backing->obtain(request);
  const auto now = Clock::now();
  const MutexLock lock(lock_);
  if (!lent) {
    ++counters_.refused;
    return lent.error();
  }
  const Bytes before = extents_.committed();
  add_extents(std::move(*lent));
  ++counters_.growths;
  trend_.note(now, (extents_.committed() - before).count);
  if (background_thread_ && options_.grow_ahead && trend_.ahead(now, extents_.committed().count) != 0)
    background_thread_->wake();
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
  request.largest = {units(std::max((committed + missing) / kExtentPart, missing / kGrowthPart))};
  return request;
}

}  // namespace gpumem::allocator
