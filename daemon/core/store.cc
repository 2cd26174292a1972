#include "daemon/core/store.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"

namespace gpumem::core {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(5);
// A grant in more pieces than this is put together from larger ones first.
constexpr std::size_t kMostExtents = 1024;
// Creations tried again in one job.
constexpr std::size_t kRetries = 256;
// One break and a merge of every size serve any wish, unless later wishes take what was made for it: a
// wish that needed more than this is served before any later one.
constexpr std::size_t kPatience = SizeClasses::kCount + 1;

}  // namespace

Store::Store(DeviceIndex device, Bytes pool, Bytes granularity, IdSource<ExtentId>& extents,
             IdSource<JobId>& jobs)
    : device_(device),
      pool_(pool, granularity, extents),
      extent_ids_(extents),
      job_ids_(jobs),
      pause_(kFirstPause) {
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
  missing_ = bytes;
}

void Store::want(RequestId request, Bytes bytes, Bytes largest) {
  wanted_.push_back({request, bytes, largest});
  changed_ = true;
}

bool Store::withdraw(RequestId request) {
  changed_ = true;
  const auto wish = std::ranges::find(wanted_, request, &Wish::request);
  if (wish == wanted_.end()) return false;
  if (wish->made) add(*wish->made);
  wanted_.erase(wish);
  return true;
}

void Store::put_back(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) add(extent);
  changed_ = true;
}

void Store::add(const Extent& extent) {
  if (classes().has(extent.size))
    pool_.add(extent);
  else
    odd_.push_back(extent);
}

// If it has been withdrawn meanwhile, the extent is anybody's.
void Store::hand_to_wish(const Attempt& attempt) {
  const auto wish = std::ranges::find(wanted_, attempt.request, &Wish::request);
  if (attempt.request && wish != wanted_.end())
    wish->made = attempt.extent;
  else
    add(attempt.extent);
}

void Store::take_back(LeaseId lease, Extent extent) {
  returned_.push_back({lease, extent});
  changed_ = true;
}

void Store::finish(const JobResult& result, TimePoint now) {
  changed_ = true;
  auto job = in_flight_.extract(result.id);
  GPUMEM_CHECK(!job.empty(), "a job ends once");
  const std::unordered_set<ExtentId> failed(result.failed.begin(), result.failed.end());
  const bool retry_is_due = !put_off_.empty();
  bool progress = false;
  for (const Attempt& attempt : job.mapped()) {
    if (failed.contains(attempt.extent.id)) {
      put_off(attempt);
      continue;
    }
    progress = true;
    hand_to_wish(attempt);
    if (attempt.missing) missing_ -= attempt.extent.size;
    if (attempt.lease) done_.freed.push_back(attempt.lease);
  }
  made_ = made_ || missing_.is_zero() || !could_be_smaller(job.mapped());
  if (put_off_.empty()) return;
  pause_ = progress ? kFirstPause : std::min(2 * pause_, kLongestPause);
  // Jobs that end in the meantime, however many, never postpone a retry.
  retry_at_ = retry_is_due ? std::min(retry_at_, now + pause_) : now + pause_;
}

// Whether parts of any of them might be created though it could not.
bool Store::could_be_smaller(const std::vector<Attempt>& attempts) const {
  return std::ranges::any_of(attempts, [this](const Attempt& attempt) {
    return !attempt.lease && attempt.extent.size > classes().granularity();
  });
}

void Store::retry_now(TimePoint now) {
  pause_ = kFirstPause;
  retry_at_ = std::min(retry_at_, now);
}

// Part of a large extent may still be had, so it is tried again in smaller ones; a proof stays whole.
void Store::put_off(const Attempt& attempt) {
  const Bytes size = attempt.extent.size;
  if (attempt.lease) {
    done_.quarantined.push_back(attempt.lease);
    put_off_.push_back({{extent_ids_.next(), size}, attempt.lease, false, {}});
    return;
  }
  if (!attempt.missing) missing_ += size;
  if (!classes().has(size)) {
    for (const Extent& extent : pool_.plan(size)) put_off_.push_back({extent, {}, true});
    return;
  }
  const bool splits = size > classes().granularity();
  const Bytes part{splits ? size.count / SizeClasses::kStep : size.count};
  for (Bytes rest = size; !rest.is_zero(); rest -= part)
    put_off_.push_back({{extent_ids_.next(), part}, {}, true});
}

Store::Progress Store::advance(TimePoint now) {
  // Without news there is nothing to do but what time brings.
  if (!std::exchange(changed_, false) && (put_off_.empty() || now < retry_at_)) return {};
  Progress progress = std::exchange(done_, {});
  break_up_odd(progress);
  assemble(progress);
  reclaim(progress);
  retry(progress, now);
  if (in_flight_.empty() && wanted_.empty()) {
    if (auto reshape = pool_.tidy()) start(progress, std::move(*reshape));
  }
  return progress;
}

// Other jobs in flight do not matter: they bring memory that is charged to others or missing, so waiting
// for them could last for ever. Only a reshape holds bytes of the wishes.
void Store::assemble(Progress& progress) {
  if (wanted_.empty()) return;
  std::vector<Wish> later;
  bool in_line = false;
  for (Wish wish : std::exchange(wanted_, {})) {
    if (in_line) {
      later.push_back(wish);
    } else if (auto extents = take(wish)) {
      progress.assembled.push_back({wish.request, std::move(*extents)});
    } else if (reshaping() || reshape_for(progress, wish)) {
      in_line = wish.reshapes > kPatience;
      later.push_back(wish);
    } else {
      progress.unobtainable.push_back(wish.request);
    }
  }
  wanted_ = std::move(later);
}

std::optional<std::vector<Extent>> Store::take(Wish& wish) {
  if (wish.made) return std::vector{*wish.made};
  if (wish.largest != kOneExtent) return pool_.take(wish.bytes, kMostExtents, wish.largest);
  return pool_.take(wish.bytes, 1);
}

// What is to be one extent is made of what would serve as several.
bool Store::reshape_for(Progress& progress, Wish& wish) {
  if (wish.largest == kOneExtent) {
    if (const auto parts = pool_.take(wish.bytes, kMostExtents)) {
      Reshape reshape{.destroy = {}, .create = {{extent_ids_.next(), wish.bytes}}};
      for (const Extent& part : *parts) reshape.destroy.push_back(part.id);
      start(progress, std::move(reshape), wish.request);
      ++wish.reshapes;
      return true;
    }
  }
  auto reshape = pool_.reshape_for(wish.bytes, kMostExtents);
  if (!reshape) return false;
  start(progress, std::move(*reshape));
  ++wish.reshapes;
  return true;
}

void Store::break_up_odd(Progress& progress) {
  if (odd_.empty() || reshaping()) return;
  Reshape reshape;
  for (const Extent& extent : std::exchange(odd_, {})) {
    reshape.destroy.push_back(extent.id);
    std::ranges::copy(pool_.plan(extent.size), std::back_inserter(reshape.create));
  }
  start(progress, std::move(reshape));
}

// One step for each lease, so that what one of them holds on to cannot pass as another's.
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
    attempts.push_back({proof, returned.lease, false});
  }
  start(progress, std::move(steps), std::move(attempts));
}

void Store::retry(Progress& progress, TimePoint now) {
  if (put_off_.empty() || now < retry_at_) return;
  begun_ = true;
  // Proofs first: what a process lets go of late is its own charge's proof before it is anybody's find.
  std::stable_partition(put_off_.begin(), put_off_.end(),
                        [](const Attempt& attempt) { return static_cast<bool>(attempt.lease); });
  // The rest has its turn when these are through: the worker is never busy with attempts in vain for long.
  const auto end = put_off_.begin() + static_cast<std::ptrdiff_t>(std::min(put_off_.size(), kRetries));
  std::vector<Attempt> attempts(put_off_.begin(), end);
  put_off_.erase(put_off_.begin(), end);
  if (!put_off_.empty()) retry_at_ = now + pause_;
  std::vector<Job::Step> steps;
  steps.reserve(attempts.size());
  for (const Attempt& attempt : attempts) steps.push_back({{}, {attempt.extent}});
  start(progress, std::move(steps), std::move(attempts));
}

void Store::start(Progress& progress, Reshape reshape, RequestId request) {
  std::vector<Attempt> attempts;
  for (const Extent& extent : reshape.create) attempts.push_back({extent, {}, false, request});
  reshape_ = start(progress, {{std::move(reshape.destroy), std::move(reshape.create)}}, std::move(attempts));
}

JobId Store::start(Progress& progress, std::vector<Job::Step> steps, std::vector<Attempt> attempts) {
  const JobId id = job_ids_.next();
  in_flight_.emplace(id, std::move(attempts));
  progress.jobs.push_back({id, device_, std::move(steps)});
  return id;
}

std::optional<TimePoint> Store::next_deadline() const {
  if (put_off_.empty()) return std::nullopt;
  return retry_at_;
}

}  // namespace gpumem::core
