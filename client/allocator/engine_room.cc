#include <algorithm>

#include "base/check.h"
#include "client/allocator/engine.h"

// From a wish for memory to a piece: what is free here first, then what the backing lends.

namespace gpumem::allocator {
namespace {

// Extents no larger than this part of what is committed, so that few bytes of any of them are left as holes.
constexpr std::uint64_t kExtentPart = 1024;
// Nor of one growth, which would cost the driver many calls.
constexpr std::uint64_t kGrowthPart = 8;
// Small blocks ask for this part of what is committed at once.
constexpr std::uint64_t kBatchPart = 512;
// Each round waits for all streams there are; other threads may give them work for ever.
constexpr int kMostRounds = 4;

}  // namespace

Result<Piece*, GrowError> Engine::satisfy(const Need& need, ThreadCache* cache) {
  const auto here = [&] {
    const MutexLock lock(lock_);
    return satisfy_here(need, cache);
  };
  if (auto done = here(); !done || *done != nullptr) return done;
  const MutexLock turn(growing_);
  bool last_means = false;
  for (auto wait = std::chrono::milliseconds::zero();;) {
    // Others may have grown meanwhile, or taken what was obtained for this.
    if (auto done = here(); !done || *done != nullptr) return done;
    auto obtained = obtain(need, wait);
    if (obtained) continue;
    if (!last_means) {  // all that is cached, what the device still uses, and what is kept for small blocks
      last_means = true;
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

Result<Piece*, GrowError> Engine::satisfy_here(const Need& need, ThreadCache* cache) {
  if (closed_.load()) return GrowError(is_closed());
  Piece* piece = take_for(need);
  if (piece == nullptr) {
    poll_all();
    if (need.kind == Need::Kind::kBehind && !stock_.can_make_behind(*need.block, need.bytes, need.stream)) {
      return GrowError(
          {Code::kAborted, "something else lies behind the block; give blocks that are to grow room"});
    }
    piece = take_for(need);
  }
  if (piece == nullptr) piece = take_ordered(need);
  if (piece == nullptr) {
    std::uint64_t missing = missing_for(need);
    if (missing != 0 && cache != nullptr && cache->bytes() != 0) {
      cache->empty(freeing(), true);
      poll_all();
      piece = take_for(need);
      missing = piece == nullptr ? missing_for(need) : 0;
    }
    if (piece == nullptr && missing == 0) {
      if (auto made = make_for(need); !made) return GrowError(made.error());
      piece = take_for(need);
      GPUMEM_CHECK(piece != nullptr, "what was made can be taken");
    }
  }
  counters_.peak_used = std::max(counters_.peak_used, heap_.used_bytes());
  return piece;
}

Piece* Engine::take_for(const Need& need) {
  switch (need.kind) {
    case Need::Kind::kPiece: return heap_.take(need.bytes, Cut::kPiece, need.stream);
    case Need::Kind::kRun: return heap_.take(need.bytes, Cut::kRun, need.stream);
    case Need::Kind::kBehind: return take_behind(need);
    case Need::Kind::kRoom: break;
  }
  Piece* piece = heap_.beginning_at(need.at);
  return piece == nullptr ? nullptr : heap_.take_whole(*piece);
}

Piece* Engine::take_behind(const Need& need) {
  const Piece* behind = need.block->after;
  if (behind == nullptr || (behind->stream != kNoStream && behind->stream != need.stream)) return nullptr;
  if (behind->bytes < need.bytes) return nullptr;
  const bool all = need.block->room_end != 0;  // nobody else may come into the room
  return heap_.widen(*need.block, all ? behind->bytes : need.bytes) ? need.block : nullptr;
}

// What other streams have freed, behind the work that may still use it: one piece that is enough; else all of
// them, which may be enough together with what lies beside them.
Piece* Engine::take_ordered(const Need& need) {
  if (need.kind != Need::Kind::kPiece && need.kind != Need::Kind::kRun) return nullptr;
  const std::uint64_t thread = ThreadTable::thread_number();
  const Cut cut = need.kind == Need::Kind::kRun ? Cut::kRun : Cut::kPiece;
  const auto streams = heap_.streams();
  for (const StreamIndex other : streams) {
    if (other == need.stream) continue;
    Piece* fits = heap_.fit(need.bytes, cut, other);
    if (fits == nullptr || !streams_.order(need.stream, other, fits->epoch, thread)) continue;
    return heap_.take_of(*fits, need.bytes, cut);
  }
  if (heap_.free_bytes() < need.bytes) return nullptr;
  for (const StreamIndex other : streams) {
    if (other == need.stream || !streams_.order(need.stream, other, streams_.epoch(other), thread)) continue;
    heap_.adopt(other, need.stream, streams_.epoch(need.stream));
    if (Piece* piece = take_for(need)) return piece;
  }
  return nullptr;
}

// A unit has place for a run wherever it begins.
std::uint64_t Engine::missing_for(const Need& need) const {
  switch (need.kind) {
    case Need::Kind::kPiece: return stock_.missing_for(need.bytes, need.stream);
    case Need::Kind::kRun: return stock_.missing_for(unit_, need.stream);
    case Need::Kind::kBehind: return stock_.missing_behind(*need.block, need.bytes, need.stream);
    case Need::Kind::kRoom: break;
  }
  return stock_.missing_at(need.bytes, need.room);
}

Result<void> Engine::make_for(const Need& need) {
  switch (need.kind) {
    case Need::Kind::kPiece: return stock_.make(need.bytes, need.stream);
    case Need::Kind::kRun: return stock_.make(unit_, need.stream);
    case Need::Kind::kBehind: return stock_.make_behind(*need.block, need.bytes, need.stream);
    case Need::Kind::kRoom: break;
  }
  return stock_.make_at(need.at, need.bytes, need.room);
}

// ---- What the device is done with ----

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
  for (Piece* run : shelves_.settle(stream, epoch)) free_piece(*run, run->stream, run->epoch);
  if (streams_.is_forgotten(stream) && epoch == streams_.epoch(stream)) retire_stream(stream);
}

// Its last mark was set when it was forgotten: nothing of it is under way any more.
void Engine::retire_stream(StreamIndex stream) {
  Shelves* shelves = &shelves_;
  heap_.each_run(stream, [shelves](Piece& run) { shelves->disown(run); });
  streams_.retire(stream);
}

// What one stream waited for may have been the last of another one's run: so until nothing is left to wait
// for.
void Engine::wait_for_all() {
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<Streams::Awaited> awaited;
    {
      const MutexLock lock(lock_);
      if (closed_.load()) return;
      empty_caches();
      auto streams = heap_.streams();
      for (const StreamIndex stream : shelves_.waited_for()) streams.push_back(stream);
      awaited = marks_of(streams);
    }
    if (awaited.empty()) return;
    wait_for(awaited);
  }
}

std::vector<Streams::Awaited> Engine::marks_of(const std::vector<StreamIndex>& streams) {
  std::vector<Streams::Awaited> marks;
  for (const StreamIndex stream : streams) {
    if (auto mark = streams_.await(stream, ThreadTable::thread_number())) marks.push_back(*mark);
  }
  return marks;
}

void Engine::wait_for(const std::vector<Streams::Awaited>& awaited) {
  std::shared_ptr<StreamPort> port;
  {
    const MutexLock lock(lock_);
    port = port_;
  }
  for (const Streams::Awaited& one : awaited) {
    const bool done = port->wait(one.mark).has_value();
    const MutexLock lock(lock_);
    port->drop(one.mark);
    if (done) settle(one.stream, one.epoch);
  }
}

void Engine::empty_caches(StreamIndex only) {
  std::vector<ThreadCache*> all;
  for (const Cached& cached : caches_) all.push_back(cached.cache.get());
  empty_stopped(all, only);
}

// The calling thread is in no cache while it is here, so its own is stopped as the others are.
void Engine::empty_stopped(const std::vector<ThreadCache*>& caches, StreamIndex only) {
  const ThreadCache* own = ThreadTable::find(number_.get());
  ThreadCache::stop(caches);
  for (ThreadCache* cache : caches) {
    cache->empty(freeing(), cache == own, only);
    if (only != kNoStream) cache->drop_stream(only);
    cache->resume();
  }
}

// ---- More ----

Result<void, GrowError> Engine::obtain(const Need& need, std::chrono::milliseconds wait) {
  Backing::Wish wish;
  std::shared_ptr<Backing> backing;
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return {};  // the next look says so
    backing = backing_;
    const std::uint64_t missing = missing_for(need);
    if (missing == 0) return {};
    wish = wish_for(missing);
    if (need.kind == Need::Kind::kBehind || need.kind == Need::Kind::kRoom) wish.most = wish.least;
    wish.wait = wait;
  }
  auto lent = backing->obtain(wish);
  const auto now = Clock::now();
  const MutexLock lock(lock_);
  if (!lent) {
    ++counters_.refused;
    return lent.error();
  }
  const Bytes before = stock_.committed();
  take_in(std::move(*lent));
  ++counters_.growths;
  trend_.note(now, (stock_.committed() - before).count);
  if (housekeeper_ && options_.grow_ahead && trend_.ahead(now, stock_.committed().count) != 0)
    housekeeper_->ring();
  return {};
}

void Engine::take_in(std::vector<Extent> lent) {
  stock_.add(std::move(lent));
  counters_.peak_committed = std::max(counters_.peak_committed, stock_.committed());
}

Backing::Wish Engine::wish_for(std::uint64_t missing) const {
  const auto units = [this](std::uint64_t bytes) { return std::max(bytes / unit_ * unit_, unit_); };
  const std::uint64_t committed = stock_.committed().count;
  const std::uint64_t left = limit_.minus(stock_.committed()).count / unit_ * unit_;
  Backing::Wish wish;
  wish.least = {missing};
  wish.most = {std::max(missing, std::min(units(committed / kBatchPart), left))};
  wish.largest = {units(std::max((committed + missing) / kExtentPart, missing / kGrowthPart))};
  return wish;
}

}  // namespace gpumem::allocator
