#include <utility>

#include "client/allocator/engine.h"

// Returns idle memory, trims and closes.

namespace gpumem::allocator {
namespace {

/// Keeps the backing until the process ends: its destructor would unmap the memory that it has lent.
void keep_for_good(std::shared_ptr<Backing> backing) {
  static Mutex mutex;
  static auto* const kKept = new std::vector<std::shared_ptr<Backing>>;
  const MutexLock lock(mutex);
  kKept->push_back(std::move(backing));
}

}  // namespace

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
    const bool is_due = idle_.is_due(now);
    if (is_due || !arena_.queue().is_empty()) arena_.poll();  // finished work may free memory for a waiter
    if (is_due) {
      arena_.caches().age(IdleTracker::kCacheTicks);
      const std::uint64_t low = arena_.heap().take_low_water() + arena_.extents().spare().count;
      const std::uint64_t unneeded = idle_.tick(now, low) / unit_ * unit_;
      if (unneeded != 0) idle = arena_.extents().take_free(unneeded, unneeded);
      arena_.counters().given_back += idle.size();
    }
    used = {arena_.heap().used_bytes()};
  }
  backing->publish(used);
  if (!idle.empty()) backing->give_back(std::move(idle));
}

Bytes Engine::surplus() const {
  const MutexLock lock(lock_);
  return arena_.extents().returnable() + Bytes{arena_.caches().bytes()};
}

Result<Bytes> Engine::trim(Bytes bytes) {
  auto given = trim_unused(bytes);
  if (!given || *given >= bytes) return given;
  wait_for_all();
  return *given + trim_unused(bytes.minus(*given)).value_or({});  // none if it was closed meanwhile
}

Result<Bytes> Engine::trim_unused(Bytes bytes) {
  if (auto can = usable(); !can) return can.error();
  std::shared_ptr<Backing> backing;
  std::vector<Extent> extents;
  Bytes given;
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return Bytes{};
    backing = backing_;
    arena_.caches().flush();
    arena_.poll();
    extents = arena_.extents().take_free(bytes.count);
    for (const Extent& extent : extents) given += extent.size;
    arena_.counters().given_back += extents.size();
  }
  if (!extents.empty()) backing->give_back(std::move(extents));
  return given;
}

// ---- Closing ----

// The caches stay stopped for good, so every later call takes the lock and sees closed_.
Result<std::uint64_t> Engine::refuse_calls(bool only_unused) {
  if (closed_.load()) return usable().error();
  ThreadCaches& caches = arena_.caches();
  const bool were_stopped = caches.are_stopped();
  caches.stop();
  const std::uint64_t left = arena_.blocks_in_use();
  if (only_unused && left != 0) {
    if (!were_stopped) caches.resume();
    return Error{Code::kFailedPrecondition,
                 std::to_string(left) + (left == 1 ? " block is" : " blocks are") +
                     " still in use; free them, or destroy the allocator with them"};
  }
  closed_.store(true);
  caches.dismiss(kNoStream);
  arena_.queue().close();
  number_.release();
  return left;
}

Result<void> Engine::close(bool only_unused) {
  if (auto can = usable(); !can) return can;
  std::vector<Streams::Awaited> awaited;
  std::shared_ptr<StreamPort> waited_on;
  bool is_covered = false;  // by marks: all work that may use the memory
  {
    const MutexLock lock(lock_);
    auto refused = refuse_calls(only_unused);
    if (!refused) return refused.error();
    waited_on = port_;
    awaited = arena_.streams().awaited();
    // Work of any stream may use blocks that are left, and their own streams may have ended.
    is_covered = *refused == 0 && !arena_.streams().has_unmarked();
  }
  {
    const std::scoped_lock lock(engine_ref_->mutex);
    engine_ref_->engine = nullptr;
  }
  if (background_task_) background_task_->end();
  attachment_.reset();
  is_covered &= wait_for(std::move(awaited), *waited_on);
  return give_all_back(is_covered ? Result<void>() : waited_on->wait_for_contexts());
}

Result<void> Engine::give_all_back(const Result<void>& work) {
  std::shared_ptr<Backing> backing;
  std::shared_ptr<StreamPort> port;
  std::vector<Extent> all;
  Bytes kept;
  {
    const MutexLock lock(lock_);
    arena_.queue().drain(lock_);
    all = work ? arena_.extents().take_all() : arena_.extents().take_free(kUnknownSize.count);
    kept = arena_.extents().committed();
    arena_.streams().drop_marks();
    backing.swap(backing_);
    port.swap(port_);
  }
  backing->publish({});
  if (!all.empty()) backing->give_back(std::move(all));
  if (kept.is_zero()) return {};
  if (!work) {
    keep_for_good(std::move(backing));
    return work.error().in("the allocator is closed, but " + to_string(kept) +
                           " stay mapped until the process ends, because work may still use them");
  }
  return Error{Code::kInternal, "the allocator is closed, but the driver keeps " + to_string(kept) +
                                    " mapped; they go back when the session ends"};
}

}  // namespace gpumem::allocator
