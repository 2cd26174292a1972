#include "daemon/core/memory/store.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"

namespace gpumem::core {
namespace {

// A grant in more pieces than this is put together from larger ones first.
constexpr std::size_t kMostExtents = 1024;
// After so many refusals by the driver for one request, it is given up rather than the pool broken up.
constexpr int kMostFailures = 8;
// Proofs tried again in one job.
constexpr std::size_t kRetries = 256;
// Beyond this part of all extents, a round of the refill creates one, and splits none that the driver
// refuses.
constexpr std::size_t kRefillShare = 2;
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

void Store::reopen(Bytes bytes, TimePoint now) { refill_.reopen(bytes, now); }

void Store::put_back(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) pool_.add(extent);
  changed_ = true;
}

void Store::take_back(LeaseId lease, Extent extent) {
  returned_.push_back({lease, extent});
  changed_ = true;
}

void Store::finish(const JobResult& result, TimePoint now) {
  changed_ = true;
  if (!result.failed.empty()) lacks_files_ = result.lacks_files;
  auto job = in_flight_.extract(result.id);
  GPUMEM_CHECK(!job.empty(), "a job ends once");
  const Flight& flight = job.mapped();
  if (flight.reshapes) {
    --reshapes_;
    reshaped_ -= bytes_of(flight);
    if (!flight.attempts.empty()) forget_coming(flight.attempts.front().extent.size, result.id);
  } else {
    overtaking_ = {};
  }
  if (flight.looks) {
    const auto free = result.room ? std::optional(result.room->minus(look_reshaped_)) : std::nullopt;
    for (const RequestId request : std::exchange(looked_, {})) done_.looked.emplace_back(request, free);
  }
  if (flight.releases) done_.released.push_back(flight.request);
  const std::unordered_set<ExtentId> failed(result.failed.begin(), result.failed.end());
  const bool proofs_waited = !put_off_.empty();
  std::vector<Extent> created;
  for (const Attempt& attempt : flight.attempts) {
    if (failed.contains(attempt.extent.id)) {
      put_off(attempt, now);
      continue;
    }
    created.push_back(attempt.extent);
    if (attempt.lease) done_.freed.push_back(attempt.lease);
  }
  if (flight.refills) end_refill(flight, result, failed, now);
  pause_proofs(!created.empty(), proofs_waited, now);
  hand_over(flight, std::move(created));
  made_ = made_ || refill_.is_exhausted();
}

// Jobs that end in the meantime, however many, never postpone a retry.
void Store::pause_proofs(bool progress, bool were_waiting, TimePoint now) {
  if (put_off_.empty()) return;
  pause_ = progress ? Refill::kFirstPause : std::min(2 * pause_, kLongestPause);
  retry_at_ = were_waiting ? std::min(retry_at_, now + pause_) : now + pause_;
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

void Store::retry_now(TimePoint now) {
  pause_ = Refill::kFirstPause;
  retry_at_ = std::min(retry_at_, now);
  refill_.hurry(now);
}

// A proof stays whole.
void Store::put_off(const Attempt& attempt, TimePoint now) {
  if (attempt.lease) {
    done_.quarantined.push_back(attempt.lease);
    put_off_.push_back({{extent_ids_.next(), attempt.extent.size}, attempt.lease});
    return;
  }
  --extents_;
  if (!attempt.refills) refill_.lose(attempt.extent.size, now);
}

Store::Progress Store::advance(TimePoint now) {
  // Without a change only retries can be due.
  if (!std::exchange(changed_, false) && !is_retry_due(now)) return {};
  Progress progress = std::exchange(done_, {});
  look(progress);
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
  return true;
}

// A round of the refill that is under way would use up what is free.
void Store::look(Progress& progress) {
  if (looking_.empty() || !looked_.empty()) return;
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

// One step for each lease, so that memory of one lease cannot pass as the proof of another.
void Store::reclaim(Progress& progress) {
  if (returned_.empty() || !made_) return;
  pause_ = Refill::kFirstPause;
  std::vector<Job::Step> steps;
  std::vector<Attempt> attempts;
  for (const Returned& returned : std::exchange(returned_, {})) {
    const Extent proof{extent_ids_.next(), returned.extent.size};
    Job::Step& step = steps.emplace_back();
    if (returned.extent.id) step.destroy.push_back(returned.extent.id);
    step.create.push_back(proof);
    attempts.push_back({proof, returned.lease});
  }
  start(progress, Job::Turn::kInOrder, std::move(steps), {std::move(attempts)});
}

bool Store::is_retry_due(TimePoint now) const {
  return (!put_off_.empty() && retry_at_ <= now) || refill_.is_due(now);
}

// Proofs first, even if they are not due: memory that a process lets go of late proves its own charge before
// it serves anything else. The rest of many proofs is tried after these, so that the worker is never busy
// with failing attempts for long.
void Store::retry(Progress& progress, TimePoint now) {
  if (!is_retry_due(now)) return;
  begun_ = true;
  const auto end = put_off_.begin() + static_cast<std::ptrdiff_t>(std::min(put_off_.size(), kRetries));
  Flight flight{.attempts = {put_off_.begin(), end}};
  put_off_.erase(put_off_.begin(), end);
  if (!put_off_.empty()) retry_at_ = now + pause_;
  std::vector<Job::Step> steps;
  for (const Attempt& attempt : flight.attempts) steps.push_back({{}, {attempt.extent}});
  if (refill_.is_due(now)) begin_refill(flight, steps);
  start(progress, Job::Turn::kInOrder, std::move(steps), std::move(flight));
}

void Store::begin_refill(Flight& flight, std::vector<Job::Step>& steps) {
  const std::size_t most = most_extents_ / kRefillShare;
  const std::size_t left = std::max<std::size_t>(most - std::min(most, extents_), 1);
  flight.refills = true;
  for (const Bytes size : refill_.begin(std::min({left, room(false), Refill::kMostOfARound}))) {
    const Extent extent{extent_ids_.next(), size};
    ++extents_;
    flight.attempts.push_back({extent, {}, true});
    steps.push_back({{}, {extent}, std::max(kept_free_, expected_)});
  }
}

void Store::end_refill(const Flight& flight, const JobResult& result,
                       const std::unordered_set<ExtentId>& failed, TimePoint now) {
  Refill::Outcome outcome{.created = {}, .room = result.room};
  outcome.may_split = !result.lacks_files && extents_ < most_extents_ / kRefillShare;
  for (const auto& [extent, lease, refills] : flight.attempts) {
    if (!refills) continue;
    if (!failed.contains(extent.id))
      outcome.created += extent.size;
    else if (!result.room || *result.room >= extent.size)
      outcome.refused = std::min(outcome.refused.value_or(extent.size), extent.size);
  }
  refill_.end(outcome, now);
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
    start(progress, Job::Turn::kSoon, {{{}, {extent}}}, {{{extent, {}}}, true});
  return id;
}

JobId Store::start(Progress& progress, Job::Turn turn, std::vector<Job::Step> steps, Flight flight) {
  const JobId id = job_ids_.next();
  if (flight.reshapes) {
    const Bytes bytes = bytes_of(flight);
    if (in_flight_.size() != reshapes_) overtaking_ += bytes;
    reshaped_ += bytes;
    ++reshapes_;
    if (!flight.request && !flight.looks) coming_[flight.attempts.front().extent.size].insert(id);
  }
  in_flight_.emplace(id, std::move(flight));
  progress.jobs.push_back({id, device_, turn, std::move(steps)});
  return id;
}

std::optional<TimePoint> Store::next_deadline() const {
  const auto refill = refill_.next();
  if (put_off_.empty()) return refill;
  return std::min(retry_at_, refill.value_or(retry_at_));
}

}  // namespace gpumem::core
