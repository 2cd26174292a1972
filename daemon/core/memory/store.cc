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

void Store::set_elastic(bool is_elastic, TimePoint now) {
  if (std::exchange(elastic_, is_elastic) == is_elastic) return;
  changed_ = true;
  if (is_elastic) return refill_.set_demand({.bytes = {}}, now);
  refill_.set_demand({}, now);
  made_ = refill_.is_exhausted();
}

void Store::set_demand(Bytes bytes, Bytes first, Bytes largest, TimePoint now) {
  is_promised_ = false;
  const bool as_one = !first.is_zero() && pool_.is_made_as_one(first, largest);
  refill_.set_demand({bytes, first, as_one}, now);
  begun_ = begun_ || refill_.open().is_zero();
}

void Store::set_promised_demand(Bytes bytes, TimePoint now) {
  refill_.set_demand({.bytes = bytes}, now);
  is_promised_ = true;
  begun_ = true;
}

// At once or not at all: what is about to be reshaped may be lost, and what is wanted is not free.
bool Store::shrink(Bytes bytes) {
  if (shrinking_ || reshaping() || !wanted_.empty()) return false;
  if (!release(done_, {.request = {}, .bytes = bytes, .largest = {}, .is_released = true})) return false;
  refill_.retire(bytes);
  shrinking_ = changed_ = true;
  return true;
}

Bytes Store::creatable() const {
  return std::min(refill_.dormant() + refill_.open(), room_.value_or(Bytes{}));
}

bool Store::is_creating(Bytes bytes) const {
  if (refill_.open().is_zero() || refill_.is_exhausted()) return false;
  return refill_.is_unasked() || refill_.is_under_way() || bytes <= creatable();
}

void Store::reopen(Bytes bytes, TimePoint now) { refill_.reopen(bytes, now); }

void Store::put_back(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) pool_.add(extent);
  changed_ = true;
}

void Store::take_back(LeaseId lease, Extent extent, bool is_promised) {
  returned_.push_back({lease, extent, is_promised});
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
    if (result.room) note_free(*result.room);
    for (const RequestId request : std::exchange(looked_, {})) done_.looked.emplace_back(request, free);
  }
  if (flight.releases) {
    if (flight.request) {
      done_.released.push_back(flight.request);
    } else {
      add_room(flight.released);
      shrinking_ = false;
    }
  }
  const std::unordered_set<ExtentId> failed(result.failed.begin(), result.failed.end());
  const bool proofs_waited = !put_off_.empty();
  std::vector<Extent> created;
  bool any_proved = false;
  for (const Attempt& attempt : flight.attempts) {
    if (!is_proved(attempt, result, failed)) {
      put_off(attempt, now);
      continue;
    }
    if (attempt.lease) done_.freed.push_back(attempt.lease);
    if (attempt.extent.id && !failed.contains(attempt.extent.id)) {
      created.push_back(attempt.extent);
      continue;
    }
    any_proved = true;
    --extents_;
    proved_ += attempt.extent.size;
    add_room(attempt.extent.size);
  }
  if (flight.refills) end_refill(flight, result, failed, now);
  pause_proofs(any_proved || !created.empty(), proofs_waited, now);
  hand_over(flight, std::move(created));
  made_ = made_ || refill_.is_exhausted();
}

bool Store::is_proved(const Attempt& attempt, const JobResult& result,
                      const std::unordered_set<ExtentId>& failed) const {
  if (!attempt.by_use) return !failed.contains(attempt.extent.id);
  return std::ranges::find(result.unproved, attempt.lease) == result.unproved.end();
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
    put_off_.push_back({{{}, attempt.extent.size}, attempt.lease});
    return;
  }
  --extents_;
  if (!attempt.refills) refill_.lose(attempt.extent.size, now);
}

Store::Progress Store::advance(TimePoint now) {
  // Without a change only retries can be due.
  if (!std::exchange(changed_, false) && !is_retry_due(now)) return {};
  Progress progress = std::exchange(done_, {});
  if (!proved_.is_zero()) {
    refill_.retire(std::exchange(proved_, {}));
    made_ = elastic_ && made_;  // of the pool that is not elastic any more, these bytes are to be created
  }
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
  in_flight_.at(id).released = wish.bytes;
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
  if (returned_.empty() || !can_prove()) return;
  pause_ = Refill::kFirstPause;
  std::vector<Job::Step> steps;
  std::vector<Attempt> attempts;
  for (const Returned& returned : std::exchange(returned_, {})) {
    Attempt& attempt = attempts.emplace_back(Attempt{{{}, returned.extent.size}, returned.lease});
    Job::Step& step = steps.emplace_back(begin_proof(attempt, returned.is_promised));
    if (returned.extent.id) step.destroy.push_back(returned.extent.id);
  }
  start(progress, Job::Turn::kInOrder, std::move(steps), {std::move(attempts)});
}

// After a proof by use, memory that is promised to somebody is created in the same step: nobody else gets it.
Job::Step Store::begin_proof(Attempt& attempt, bool is_promised) {
  attempt.by_use = elastic_;
  Job::Step step{.destroy = {}, .create = {}};
  if (!elastic_ || is_promised) {
    attempt.extent.id = extent_ids_.next();
    step.create.push_back(attempt.extent);
  }
  step.proof = {attempt.lease, attempt.extent.size, elastic_};
  return step;
}

bool Store::are_proofs_due(TimePoint now) const {
  return !put_off_.empty() && can_prove() && retry_at_ <= now;
}

bool Store::is_retry_due(TimePoint now) const { return are_proofs_due(now) || refill_.is_due(now); }

// Proofs first, even if they are not due: memory that a process lets go of late proves its own charge before
// it serves anything else. The rest of many proofs is tried after these, so that the worker is never busy
// with failing attempts for long.
void Store::retry(Progress& progress, TimePoint now) {
  if (!is_retry_due(now)) return;
  begun_ = true;
  const std::size_t most = can_prove() ? kRetries : 0;
  const auto end = put_off_.begin() + static_cast<std::ptrdiff_t>(std::min(put_off_.size(), most));
  Flight flight{.attempts = {put_off_.begin(), end}};
  put_off_.erase(put_off_.begin(), end);
  if (!put_off_.empty()) retry_at_ = now + pause_;
  std::vector<Job::Step> steps;
  for (Attempt& attempt : flight.attempts) steps.push_back(begin_proof(attempt, false));
  const bool refills = refill_.is_due(now);
  if (refills && (refill_.serves_request() || is_promised_)) {
    begin_urgent_refill(progress);
  } else if (refills) {
    begin_refill(flight, steps);
  }
  if (!steps.empty() || flight.refills)
    start(progress, Job::Turn::kInOrder, std::move(steps), std::move(flight));
}

// No other memory can pass as a proof in an elastic pool, so the round need not be in order. It leaves what
// reshapes in flight have destroyed and are to create again.
void Store::begin_urgent_refill(Progress& progress) {
  Flight flight;
  std::vector<Job::Step> steps;
  begin_refill(flight, steps);
  for (Job::Step& step : steps) *step.keep_free += reshaped_;
  start(progress, Job::Turn::kNow, std::move(steps), std::move(flight));
}

void Store::begin_refill(Flight& flight, std::vector<Job::Step>& steps) {
  const std::size_t most = most_extents_ / kRefillShare;
  const std::size_t left = std::max<std::size_t>(most - std::min(most, extents_), 1);
  flight.refills = true;
  for (const Bytes size : refill_.begin(std::min({left, room(false), Refill::kMostOfARound}))) {
    const Extent extent{extent_ids_.next(), size};
    ++extents_;
    flight.attempts.push_back({extent, {}, true});
    steps.push_back({{}, {extent}, kept()});
  }
}

void Store::end_refill(const Flight& flight, const JobResult& result,
                       const std::unordered_set<ExtentId>& failed, TimePoint now) {
  Refill::Outcome outcome{.created = {}, .room = result.room};
  outcome.may_split = !result.lacks_files && extents_ < most_extents_ / kRefillShare;
  for (const Attempt& attempt : flight.attempts) {
    const Extent& extent = attempt.extent;
    if (!attempt.refills) continue;
    if (!failed.contains(extent.id))
      outcome.created += extent.size;
    else if (!result.room || *result.room >= extent.size)
      outcome.refused = std::min(outcome.refused.value_or(extent.size), extent.size);
  }
  room_ = result.room;
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
    if (!flight.request && !flight.attempts.empty()) coming_[flight.attempts.front().extent.size].insert(id);
  }
  in_flight_.emplace(id, std::move(flight));
  progress.jobs.push_back({id, device_, turn, std::move(steps)});
  return id;
}

std::optional<TimePoint> Store::next_deadline() const {
  const auto refill = refill_.next();
  if (put_off_.empty() || !can_prove()) return refill;
  return std::min(retry_at_, refill.value_or(retry_at_));
}

}  // namespace gpumem::core
