#include "daemon/core/memory/store.h"

#include <algorithm>

#include "base/check.h"

namespace gpumem::core {
namespace {

// A grant in more pieces than this is put together from larger ones first.
constexpr std::size_t kMostExtents = 1024;
// After so many refusals by the driver for one request, it is given up rather than the pool broken up.
constexpr int kMostFailures = 8;
// Requests may have this part of the pool reshaped at a time, and in all while proofs wait; then the waiting
// jobs come next. Without this bound a client could keep the driver busy by requests that it withdraws.
constexpr std::uint64_t kReshapedShare = 4;
// This part of all extents is for guaranteed memory.
constexpr std::size_t kGuaranteedShare = 4;

}  // namespace

Store::Store(DeviceIndex device, Bytes pool, Bytes granularity, IdSource<ExtentId>& extents,
             IdSource<JobId>& jobs, std::size_t most_extents)
    : device_(device),
      pool_(pool, granularity, extents),
      extent_ids_(extents),
      job_ids_(jobs),
      most_reshaped_{pool.count / kReshapedShare},
      refill_(pool_.classes()),
      most_extents_(std::min(most_extents, Pool::kAnyNumber)) {
  refill_.plan(pool);
}

void Store::adopt(Bytes bytes) {
  GPUMEM_CHECK(!begun_ && bytes <= missing(),
               "what was lent before is part of a pool that is still to be made");
  refill_.plan(missing() - bytes);
  begun_ = made_ = missing().is_zero();
}

void Store::want(RequestId request, Bytes bytes, Bytes largest, bool guaranteed) {
  wanted_.push_back({request, bytes, largest, guaranteed});
  changed_ = true;
}

bool Store::withdraw(RequestId request) {
  changed_ = true;
  const auto wish = std::ranges::find(wanted_, request, &Wish::request);
  if (wish == wanted_.end()) return false;
  if (wish->is_released) refill_.keep_after_all(wish->bytes);
  let_go(*wish);
  wanted_.erase(wish);
  return true;
}

void Store::look(RequestId request) {
  looking_.push_back(request);
  changed_ = true;
}

void Store::release(RequestId request, Bytes bytes) {
  refill_.set_aside(bytes);
  wanted_.push_back({.request = request, .bytes = bytes, .largest = {}, .is_released = true});
  changed_ = true;
}

// At once or not at all: what is about to be reshaped may be lost, and what is wanted is not free.
bool Store::shrink(Bytes bytes) {
  if (shrinking_ || reshaping() || !wanted_.empty()) return false;
  if (!release(done_, {.request = {}, .bytes = bytes, .largest = {}, .is_released = true})) return false;
  refill_.retire(bytes);
  shrinking_ = changed_ = true;
  return true;
}

void Store::put_back(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) pool_.add(extent);
  changed_ = true;
}

void Store::take_back(LeaseId lease, Extent extent, bool is_promised, SessionId only_user) {
  returned_.push_back({lease, extent, is_promised, only_user});
  changed_ = true;
}

// A wish gets all of the extents or none: if some failed, it may find others. If it was withdrawn meanwhile,
// the pool gets the extents.
void Store::hand_over(const Flight& flight, std::vector<Extent> created) {
  const auto wish = std::ranges::find(wanted_, flight.request, &Wish::request);
  if (!flight.request || wish == wanted_.end()) return put_back(created);
  wish->waits_for = {};
  hold(*wish, created);
  if (created.size() == flight.attempts.size()) return;
  ++wish->failures;
  let_go(*wish);
}

Store::Progress Store::advance(TimePoint now) {
  // Without a change only retries and looks can be due.
  if (!std::exchange(changed_, false) && !is_retry_due(now) && !is_look_due(now)) return {};
  Progress progress = std::exchange(done_, {});
  if (!proved_.is_zero()) {
    refill_.retire(std::exchange(proved_, {}));
    made_ = elastic_ && made_;  // of the pool that is not elastic any more, these bytes are to be created
  }
  look(progress, now);
  assemble(progress);
  reclaim(progress);
  retry(progress, now);
  if (in_flight_.empty() && wanted_.empty()) {
    if (auto reshape = pool_.tidy(room(false))) {
      const std::span<const Extent> created = reshape->create;
      start(progress, Job::Turn::kNow, {std::move(reshape->destroy), {created.front()}}, created.subspan(1));
    }
  }
  return progress;
}

// Proofs and retries in flight are not waited for: they bring memory that is charged to others or missing,
// and may never end. Only a reshape holds bytes of the wishes. If a wish waits for more than its own job,
// later wishes get warm extents, but start no job.
void Store::assemble(Progress& progress) {
  bool anew = std::max(overtaking_, reshaped_) < most_reshaped_;
  std::vector<Wish> later;
  for (Wish& wish : std::exchange(wanted_, {})) {
    if (wish.is_released) {
      if (release(progress, wish)) continue;
      if (reshaping()) {
        later.push_back(std::move(wish));
        continue;
      }
      refill_.keep_after_all(wish.bytes);
      progress.unobtainable.push_back(wish.request);
      continue;
    }
    if (auto extents = take(wish)) {
      pool_.note_demand(wish.bytes, wish.largest);
      progress.assembled.push_back({wish.request, std::move(*extents)});
      continue;
    }
    const bool has_job = wish.waits_for || claim(progress, wish);
    anew = anew && (has_job || !comes(wish));
    if (!has_job && anew && !make(progress, wish)) {
      if (!reshaping()) {
        (is_held_back_by_files(wish) ? progress.too_many : progress.unobtainable).push_back(wish.request);
        continue;
      }
      anew = false;
    }
    later.push_back(std::move(wish));
  }
  wanted_ = std::move(later);
}

std::optional<std::vector<Extent>> Store::take(Wish& wish) {
  if (wish.waits_for) return std::nullopt;
  if (wish.held.empty()) return pool_.take(wish.bytes, kMostExtents, wish.largest);
  for (const Extent& extent : wish.held) held_ -= extent.size;
  return std::move(wish.held);
}

bool Store::make(Progress& progress, Wish& wish) {
  if (wish.failures == kMostFailures) return false;
  auto making = pool_.make(wish.bytes, kMostExtents, wish.largest, room(wish.guaranteed));
  if (!making) return false;
  hold(wish, making->taken);
  wish.waits_for = start(progress, Job::Turn::kNow, {std::move(making->destroy), std::move(making->wanted)},
                         making->rest, wish.request);
  return true;
}

// If a larger extent is broken, only the rest of it is created anew.
bool Store::release(Progress& progress, const Wish& wish) {
  Job::Step step;
  std::vector<Extent> rest;
  auto taken = pool_.take(wish.bytes, kMostExtents);
  if (!taken) {
    auto making = pool_.make(wish.bytes, kMostExtents, {}, room(false));
    if (!making) return false;
    step.destroy = std::move(making->destroy);
    rest = std::move(making->rest);
    taken = std::move(making->taken);
  }
  for (const Extent& extent : *taken) step.destroy.push_back(extent.id);
  const JobId id = start(progress, Job::Turn::kNow, std::move(step), rest, wish.request);
  in_flight_.at(id).releases = true;
  in_flight_.at(id).released = wish.bytes;
  started_bytes_ += wish.bytes;
  return true;
}

// A round of the refill that is under way would use up what is free.
void Store::look(Progress& progress, TimePoint now) {
  if (looks_ || (looking_.empty() && !is_look_due(now))) return;
  looks_ = true;
  looked_ = std::exchange(looking_, {});
  look_reshaped_ = reshaped_;
  const bool waits = refill_.is_under_way();
  start(progress, waits ? Job::Turn::kInOrder : Job::Turn::kNow, {{{}, {}, Bytes{}}},
        {.attempts = {}, .reshapes = !waits, .looks = true});
}

// Enough warm memory can always be made into what is asked for, but for the number of extents.
bool Store::is_held_back_by_files(const Wish& wish) const {
  return wish.failures == kMostFailures ? lacks_files_ : pool_.warm() >= wish.bytes;
}

std::size_t Store::room(bool guaranteed) const {
  const std::size_t most = guaranteed ? most_extents_ : most_extents_ - most_extents_ / kGuaranteedShare;
  return most - std::min(most, extents_);
}

// Claims an extent for the wish that is about to be made for the stock.
bool Store::claim(Progress& progress, Wish& wish) {
  if (!pool_.is_made_as_one(wish.bytes, wish.largest)) return false;
  const auto found = coming_.find(wish.bytes);
  if (found == coming_.end()) return false;
  wish.waits_for = *found->second.begin();
  in_flight_.at(wish.waits_for).request = wish.request;
  progress.hurried.push_back(wish.waits_for);
  forget_coming(wish.bytes, wish.waits_for);
  return true;
}

// Where it needs several, it waits for those of the size that most of it is made of.
bool Store::comes(const Wish& wish) const {
  return !pool_.is_made_as_one(wish.bytes, wish.largest) &&
         coming_.contains(classes().largest_within(wish.bytes));
}

Bytes Store::bytes_of(const Flight& flight) {
  Bytes sum;
  for (const Attempt& attempt : flight.attempts) sum += attempt.extent.size;
  return sum;
}

void Store::forget_coming(Bytes size, JobId job) {
  const auto found = coming_.find(size);
  if (found == coming_.end()) return;
  found->second.erase(job);
  if (found->second.empty()) coming_.erase(found);
}

void Store::hold(Wish& wish, const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) held_ += extent.size;
  std::ranges::copy(extents, std::back_inserter(wish.held));
}

void Store::let_go(Wish& wish) {
  for (const Extent& extent : wish.held) held_ -= extent.size;
  put_back(std::exchange(wish.held, {}));
}

JobId Store::start(Progress& progress, Job::Turn turn, Job::Step first, std::span<const Extent> rest,
                   RequestId request) {
  extents_ += first.create.size() + rest.size();
  extents_ -= first.destroy.size();
  Flight flight{.attempts = {}, .reshapes = true, .request = request};
  for (const Extent& extent : first.create) flight.attempts.push_back({extent, {}});
  std::vector<Job::Step> steps;
  steps.push_back(std::move(first));
  const JobId id = start(progress, turn, std::move(steps), std::move(flight));
  for (const Extent& extent : rest)
    start(progress, Job::Turn::kSoon, {{{}, {extent}}}, {.attempts = {{extent, {}}}, .reshapes = true});
  return id;
}

JobId Store::start(Progress& progress, Job::Turn turn, std::vector<Job::Step> steps, Flight flight) {
  const JobId id = job_ids_.next();
  const Bytes bytes = bytes_of(flight);
  started_bytes_ += bytes;
  if (flight.reshapes) {
    if (in_flight_.size() != reshapes_) overtaking_ += bytes;
    reshaped_ += bytes;
    ++reshapes_;
    if (!flight.request && !flight.attempts.empty()) coming_[flight.attempts.front().extent.size].insert(id);
  }
  in_flight_.emplace(id, std::move(flight));
  progress.jobs.push_back({id, device_, turn, std::move(steps)});
  return id;
}

}  // namespace gpumem::core
