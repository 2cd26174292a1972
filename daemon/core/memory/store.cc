#include "daemon/core/memory/store.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"

namespace gpumem::core {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(5);
// A grant in more pieces than this is put together from larger ones first.
constexpr std::size_t kMostExtents = 1024;
// After so many refusals by the driver for one request, it is given up rather than the pool broken up.
constexpr int kMostFailures = 8;
// Creations tried again in one job.
constexpr std::size_t kRetries = 256;
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
      pause_(kFirstPause),
      most_extents_(std::min(most_extents, Pool::kAnyNumber)) {
  plan_pool(pool);
}

void Store::adopt(Bytes bytes) {
  GPUMEM_CHECK(!begun_ && bytes <= missing_,
               "what was lent before is part of a pool that is still to be made");
  plan_pool(missing_ - bytes);
  begun_ = made_ = missing_.is_zero();
}

// The whole pool is created by the first job; until then it is missing.
void Store::plan_pool(Bytes bytes) {
  put_off_.clear();
  for (const Extent& extent : pool_.plan(bytes)) put_off_.push_back({extent, {}, true});
  extents_ = put_off_.size();
  missing_ = bytes;
}

void Store::want(RequestId request, Bytes bytes, Bytes largest, bool guaranteed) {
  wanted_.push_back({request, bytes, largest, guaranteed});
  changed_ = true;
}

bool Store::withdraw(RequestId request) {
  changed_ = true;
  const auto wish = std::ranges::find(wanted_, request, &Wish::request);
  if (wish == wanted_.end()) return false;
  let_go(*wish);
  wanted_.erase(wish);
  return true;
}

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
  const bool reshaped = job.mapped().reshapes;
  if (reshaped) {
    --reshapes_;
    reshaped_ -= bytes_of(job.mapped());
    forget_coming(job.mapped().attempts.front().extent.size, result.id);
  } else {
    overtaking_ = {};
  }
  const std::unordered_set<ExtentId> failed(result.failed.begin(), result.failed.end());
  const bool retry_is_due = !put_off_.empty();
  std::vector<Extent> created;
  for (const Attempt& attempt : job.mapped().attempts) {
    if (failed.contains(attempt.extent.id)) {
      put_off(attempt);
      continue;
    }
    created.push_back(attempt.extent);
    if (attempt.missing) missing_ -= attempt.extent.size;
    if (attempt.lease) done_.freed.push_back(attempt.lease);
  }
  const bool progress = !created.empty();
  hand_over(job.mapped(), std::move(created));
  made_ = made_ || missing_.is_zero() || (!reshaped && !could_be_smaller(job.mapped().attempts));
  if (put_off_.empty()) return;
  pause_ = progress ? kFirstPause : std::min(2 * pause_, kLongestPause);
  // Jobs that end in the meantime, however many, never postpone a retry.
  retry_at_ = retry_is_due ? std::min(retry_at_, now + pause_) : now + pause_;
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

// Whether one of the extents might be created in smaller parts.
bool Store::could_be_smaller(const std::vector<Attempt>& attempts) const {
  return may_split() && std::ranges::any_of(attempts, [this](const Attempt& attempt) {
           return !attempt.lease && attempt.extent.size > classes().granularity();
         });
}

// Extents that failed are split into half of all extents at most: the others are for what the driver gives.
bool Store::may_split() const { return !lacks_files_ && extents_ < most_extents_ / 2; }

void Store::retry_now(TimePoint now) {
  pause_ = kFirstPause;
  retry_at_ = std::min(retry_at_, now);
}

// A large extent is tried again in smaller ones, since part of it may be available. A proof stays whole.
void Store::put_off(const Attempt& attempt) {
  const Bytes size = attempt.extent.size;
  if (attempt.lease) {
    done_.quarantined.push_back(attempt.lease);
    put_off_.push_back({{extent_ids_.next(), size}, attempt.lease, false});
    return;
  }
  if (!attempt.missing) missing_ += size;
  if (!classes().has(size) && !lacks_files_) {
    const std::vector<Extent> parts = pool_.plan(size);
    for (const Extent& extent : parts) put_off_.push_back({extent, {}, true});
    extents_ += parts.size() - 1;
    return;
  }
  const bool splits = size > classes().granularity() && may_split();
  if (splits) extents_ += SizeClasses::kStep - 1;
  const Bytes part{splits ? size.count / SizeClasses::kStep : size.count};
  for (Bytes rest = size; !rest.is_zero(); rest -= part)
    put_off_.push_back({{extent_ids_.next(), part}, {}, true});
}

Store::Progress Store::advance(TimePoint now) {
  // Without a change only retries can be due.
  if (!std::exchange(changed_, false) && (put_off_.empty() || now < retry_at_)) return {};
  Progress progress = std::exchange(done_, {});
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
  pause_ = kFirstPause;
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

void Store::retry(Progress& progress, TimePoint now) {
  if (put_off_.empty() || now < retry_at_) return;
  begun_ = true;
  // Proofs first: memory that a process lets go of late proves its own charge before it serves anything else.
  std::stable_partition(put_off_.begin(), put_off_.end(),
                        [](const Attempt& attempt) { return static_cast<bool>(attempt.lease); });
  // The rest is tried after these, so that the worker is never busy with failing attempts for long.
  const auto end = put_off_.begin() + static_cast<std::ptrdiff_t>(std::min(put_off_.size(), kRetries));
  std::vector<Attempt> attempts(put_off_.begin(), end);
  put_off_.erase(put_off_.begin(), end);
  if (!put_off_.empty()) retry_at_ = now + pause_;
  std::vector<Job::Step> steps;
  steps.reserve(attempts.size());
  for (const Attempt& attempt : attempts) steps.push_back({{}, {attempt.extent}});
  start(progress, Job::Turn::kInOrder, std::move(steps), {std::move(attempts)});
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
    if (!flight.request) coming_[flight.attempts.front().extent.size].insert(id);
  }
  in_flight_.emplace(id, std::move(flight));
  progress.jobs.push_back({id, device_, turn, std::move(steps)});
  return id;
}

std::optional<TimePoint> Store::next_deadline() const {
  if (put_off_.empty()) return std::nullopt;
  return retry_at_;
}

}  // namespace gpumem::core
