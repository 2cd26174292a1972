#include <algorithm>

#include "client/allocator/engine.h"

// Growth: memory of the backing, and waiting for it and for the device.

namespace gpumem::allocator {
namespace {

// The largest extent, as a part of what is committed, so that one block keeps little memory.
constexpr std::uint64_t kExtentPart = 2048;
// But at least this part of a growth, and in a large one so much, because many extents cost many driver
// calls.
constexpr std::uint64_t kGrowthPart = 8;
constexpr std::uint64_t kLargeGrowth = mebibytes(64).count;
constexpr std::uint64_t kLeastOfLarge = mebibytes(32).count;
// A growth requests up to this part of what is committed, even if less is missing.
constexpr std::uint64_t kRequestPart = 512;
// Each round waits for all streams. Other threads may add work without end, so the rounds are bounded.
constexpr int kMostRounds = 4;
// Longer than any real wait, and short enough to be added to a point in time.
constexpr std::chrono::hours kLongestWait{24 * 365};

/// The error of a waiter that does not wait on after `refused`.
GrowError end_of_wait(const GrowthQueue::Waiter& waiter, GrowError refused) {
  if (waiter.is_interrupted()) return waiter.signals->error();
  refused.code = Code::kDeadlineExceeded;
  return refused;
}

}  // namespace

/// Ends the waiter's turn and wait, lets the stream go, and a room without a block: after exceptions, too.
struct Engine::Leave {
  Engine& of;
  GrowthQueue::Waiter& waiter;
  const Need& need;
  bool found = false;
  ~Leave() {
    const MutexLock lock(of.lock_);
    Arena& arena = of.arena_;
    if (need.kind == Need::Kind::kRoom && !found) arena.heap().release_room(*need.beside);
    arena.streams().let_go(need.stream);
    arena.queue().leave(waiter);
    if (arena.caches().are_stopped() && arena.queue().is_empty() && !of.closed_.load())
      arena.caches().resume();
  }
};

Result<Address, GrowError> Engine::satisfy(Need need, const Finish& finish) {
  const auto deadline = Clock::now() + std::min<std::chrono::milliseconds>(need.wait, kLongestWait);
  GrowthQueue::Waiter waiter{.bytes = need.bytes, .stream = need.stream};
  if (need.cut == Cut::kSlab) waiter.slots = class_of(need.requested);
  Leave leaves{*this, waiter, need};
  std::optional<GrowError> refused;
  bool last_resort = false;
  for (bool last_look = false;;) {
    Backing::Request request;
    std::shared_ptr<Backing> backing;
    {
      const MutexLock lock(lock_);
      if (closed_.load()) return GrowError(usable().error());
      if (const Address at = last_resort ? arena_.take_at_once(need) : 0) return at;  // from the caches
      auto done = arena_.find_span(need);
      if (!done) return done.error();
      if (leaves.found = *done != nullptr; leaves.found) return finish(**done);
      if (last_look) return *refused;
      if (last_resort && refused && !waiter.waits && need.wait.count() > 0) {
        arena_.queue().begin_to_wait(waiter);
        arena_.caches().stop();  // until nobody waits, no block goes where the waiter would not see it
      }
      const bool may_grow = arena_.queue().take_turn(waiter, deadline, lock_);
      const bool is_late = !may_grow && Clock::now() >= deadline;
      last_look = waiter.waits && (waiter.is_interrupted() || is_late);
      if (last_look) refused = end_of_wait(waiter, std::move(*refused));
      if (!may_grow || last_look) continue;
      request = request_for(need, waiter, deadline);
      const bool is_last = need.wait.count() > 0 ? waiter.waits : last_resort;
      request.is_probe = need.is_probe || !is_last;
      backing = backing_;
      if (request.min_bytes.is_zero()) {  // another growth was enough
        arena_.queue().end_turn(waiter);
        continue;
      }
    }
    const Clock::time_point begun = Clock::now();
    auto obtained = obtain(*backing, request, waiter);
    if (obtained || obtained.error().code == Code::kCancelled) continue;
    if (!waiter.waits) need.taken += Clock::now() - begun;
    refused = obtained.error();
    if (last_resort) {
      last_look = waiter.waits || need.wait.count() <= 0;
    } else {
      last_resort = true;
      refused.reset();
      if (need.wait.count() > 0) waiter.signals.emplace();
      wait_for_all();
    }
  }
}

Result<void, GrowError> Engine::obtain(Backing& backing, const Backing::Request& request,
                                       const GrowthQueue::Waiter& waiter) {
  auto lent = backing.obtain(request);
  const MutexLock lock(lock_);
  arena_.queue().end_turn(waiter);
  if (!lent) {
    arena_.counters().refused += lent.error().code == Code::kCancelled ? 0 : 1;
    return lent.error();
  }
  arena_.add_extents(std::move(*lent));
  ++arena_.counters().growths;
  steady_.grew(waiter.bytes, Clock::now());
  return {};
}

Backing::Request Engine::request_for(const Need& need, const GrowthQueue::Waiter& waiter,
                                     Clock::time_point deadline) {
  const auto units = [this](std::uint64_t bytes) { return std::max(bytes / unit_ * unit_, unit_); };
  const std::uint64_t missing = arena_.plan_for(need).missing;
  const std::uint64_t committed = arena_.extents().committed().count;
  const std::uint64_t left = properties_.limit.minus({committed}).count / unit_ * unit_;
  const bool is_span = need.kind == Need::Kind::kSpan;
  const std::uint64_t more = is_span ? std::min(units(committed / kRequestPart), left) : 0;
  const auto steady =
      is_span ? steady_.extent_for(need.bytes, missing, committed, Clock::now()) : std::nullopt;
  Backing::Request request;
  request.min_bytes = {missing};
  if (steady) {
    request.bytes = request.largest = {std::max(missing, std::min(*steady, left))};
  } else {
    const std::uint64_t least = missing < kLargeGrowth ? 0 : kLeastOfLarge;
    request.bytes = {std::max(missing, more)};
    request.largest = {units(std::max({(committed + missing) / kExtentPart, missing / kGrowthPart, least}))};
  }
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  if (waiter.waits) request.wait = std::max(wait, std::chrono::milliseconds::zero());
  request.stop = waiter.stop.get_token();
  request.taken = need.taken;
  return request;
}

// ---- Waiting for the device ----

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
      arena_.caches().flush();
      awaited = arena_.streams().awaited();
    }
    if (awaited.empty()) return;
    wait_for(std::move(awaited), *port);
  }
}

bool Engine::is_default_current() const {
  const MutexLock lock(lock_);
  return closed_.load() || port_->is_default_current();
}

Result<void> Engine::wait_for_default() {
  std::shared_ptr<StreamPort> port;
  StreamPort::Mark mark{};
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return {};
    port = port_;
    const auto set = port->mark(nullptr);
    if (!set) return set.error();
    mark = *set;
  }
  auto waited = port->wait(mark);
  const MutexLock lock(lock_);
  port->drop(mark);
  return waited;
}

bool Engine::wait_for(std::vector<Streams::Awaited> awaited, StreamPort& port) {
  bool all = true;
  for (Streams::Awaited& one : awaited) {
    const bool done = std::ranges::all_of(
        one.marks, [&](const Streams::SharedMark& mark) { return port.wait(*mark).has_value(); });
    const MutexLock lock(lock_);
    one.marks.clear();
    if (done && backing_) arena_.settle(one.stream, one.epoch);
    all &= done;
  }
  return all;
}

}  // namespace gpumem::allocator
