// The ends of jobs: they prove returned memory free, and create memory of the pool that was missing.

#include <algorithm>
#include <span>
#include <unordered_set>

#include "base/check.h"
#include "daemon/core/memory/store.h"

namespace gpumem::core {
namespace {

// Proofs in one job. What it has proved is free only when it has ended.
constexpr std::size_t kFewestProofs = 2;
constexpr std::size_t kMostProofs = 256;
// Leases in one step, between whose driver calls no waiting request is served.
constexpr std::size_t kMostOfAGroup = 16;
// Beyond this part of all extents, a round of the refill creates one, and splits none that the driver
// refuses.
constexpr std::size_t kRefillShare = 2;

}  // namespace

void Store::set_elastic(bool is_elastic, TimePoint now) {
  if (std::exchange(elastic_, is_elastic) == is_elastic) return;
  changed_ = true;
  if (is_elastic) return refill_.set_demand({.bytes = {}}, now);
  refill_.set_demand({}, now);
  refill_.ask_anew(now);  // what was refused was kept for others
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

void Store::reopen(Bytes bytes, TimePoint now) { refill_.reopen(bytes, now); }

Bytes Store::creatable() const { return std::min(refill_.obtainable(), room_.value_or(Bytes{})); }

// The driver had less than what is missing. Others may have given memory back since, and what a pool can grow
// by is told to users although nobody asks for it.
std::optional<TimePoint> Store::next_look() const {
  if (!elastic_ || looks_ || refill_.is_under_way() || !room_ || creatable() == refill_.obtainable())
    return {};
  return room_seen_ + Refill::kLongestPause;
}

bool Store::is_look_due(TimePoint now) const {
  const auto next = next_look();
  return next && *next <= now;
}

bool Store::is_creating(Bytes bytes) const {
  if (refill_.open().is_zero() || refill_.is_exhausted()) return false;
  return refill_.is_unasked() || refill_.is_under_way() || bytes <= creatable();
}

void Store::finish(const JobResult& result, TimePoint now) {
  changed_ = true;
  if (!result.failed.empty()) lacks_files_ = result.lacks_files;
  auto job = in_flight_.extract(result.id);
  GPUMEM_CHECK(!job.empty(), "a job ends once");
  const Flight& flight = job.mapped();
  ended_bytes_ += bytes_of(flight) + flight.released;
  if (flight.reshapes) {
    --reshapes_;
    reshaped_ -= bytes_of(flight);
    if (!flight.attempts.empty()) forget_coming(flight.attempts.front().extent.size, result.id);
  } else {
    overtaking_ = {};
  }
  if (flight.looks) end_look(result, now);
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
    if (attempt.lease) {
      preferred_.erase(attempt.lease);
      done_.freed.push_back(attempt.lease);
    }
    const bool is_merged = attempt.merged && !failed.contains(attempt.merged);
    if (attempt.extent.id && !failed.contains(attempt.extent.id) && !is_merged) {
      created.push_back(attempt.extent);
      continue;
    }
    --extents_;
    if (is_merged) continue;
    any_proved = true;
    proved_ += attempt.extent.size;
    add_room(attempt.extent.size);
  }
  for (const Extent& extent : flight.merged) {
    if (failed.contains(extent.id)) continue;
    created.push_back(extent);
    ++extents_;
  }
  if (flight.refills) end_refill(flight, result, failed, now);
  if (flight.proves_anew) pause_ = Refill::kFirstPause;
  pause_proofs(any_proved || !created.empty(), proofs_waited, now);
  hand_over(flight, std::move(created));
  made_ = made_ || refill_.is_exhausted();
}

void Store::end_look(const JobResult& result, TimePoint now) {
  looks_ = false;
  room_seen_ = now;
  const auto free = result.room ? std::optional(result.room->minus(look_reshaped_)) : std::nullopt;
  if (result.room) note_free(*result.room, now);
  for (const RequestId request : std::exchange(looked_, {})) done_.looked.emplace_back(request, free);
}

bool Store::is_proved(const Attempt& attempt, const JobResult& result,
                      const std::unordered_set<ExtentId>& failed) const {
  if (!attempt.by_use) return !failed.contains(attempt.extent.id);
  return std::ranges::find(result.unproved, attempt.lease) == result.unproved.end();
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

// Jobs that end in the meantime, however many, never postpone a retry.
void Store::pause_proofs(bool progress, bool were_waiting, TimePoint now) {
  if (put_off_.empty()) return;
  pause_ = progress ? Refill::kFirstPause : std::min(2 * pause_, kLongestPause);
  retry_at_ = were_waiting ? std::min(retry_at_, now + pause_) : now + pause_;
}

// The first job has few steps, and each further job four times as many as all before it. So a request for
// little memory waits for few proofs, and many proofs are few jobs.
void Store::reclaim(Progress& progress) {
  if (returned_.empty() || !can_prove()) return;
  const std::vector<Returned> all = std::exchange(returned_, {});
  const std::vector<Group> groups = groups_of(all);
  std::size_t begun = 0;
  for (auto first = groups.begin(); first != groups.end();) {
    const std::size_t most = std::clamp(4 * begun, kFewestProofs, kMostProofs);
    std::size_t count = 0;
    auto last = first;
    do count += last++->size();
    while (last != groups.end() && count + last->size() <= most);
    begin_proofs(progress, {first, last});
    first = last;
    begun += count;
  }
}

// Memory of one lease cannot pass as the proof of another: each is created anew by itself, or with others
// that the same session alone has used.
std::vector<Store::Group> Store::groups_of(std::span<const Returned> all) const {
  std::vector<Group> groups;
  while (!all.empty()) {
    const Returned& first = all.front();
    const auto differs = [&](const Returned& one) {
      return one.only_user != first.only_user || one.extent.size != first.extent.size || !one.extent.id;
    };
    const bool may_merge = !elastic_ && first.only_user && first.extent.id;
    const auto end = may_merge ? std::ranges::find_if(all, differs) : all.begin() + 1;
    const auto count = static_cast<std::size_t>(end - all.begin());
    for (const Bytes size : pool_.merged(first.extent.size, count)) {
      for (std::size_t left = size.count / first.extent.size.count; left != 0;) {
        groups.push_back(all.first(std::min(left, kMostOfAGroup)));
        all = all.subspan(groups.back().size());
        left -= groups.back().size();
      }
    }
  }
  return groups;
}

void Store::begin_proofs(Progress& progress, std::span<const Group> groups) {
  std::vector<Job::Step> steps;
  Flight flight{.attempts = {}, .proves_anew = true};
  for (const Group& group : groups) {
    if (group.size() > 1) {
      begin_merged_proof(group, flight, steps);
      continue;
    }
    const Returned& returned = group.front();
    Attempt& attempt = flight.attempts.emplace_back(Attempt{{{}, returned.extent.size}, returned.lease});
    Job::Step& step = steps.emplace_back(begin_proof(attempt, returned.is_promised));
    if (returned.extent.id) step.destroy.push_back(returned.extent.id);
  }
  start(progress, Job::Turn::kInOrder, std::move(steps), std::move(flight));
}

void Store::begin_merged_proof(Group group, Flight& flight, std::vector<Job::Step>& steps) {
  const Extent merged{extent_ids_.next(), {group.size() * group.front().extent.size.count}};
  flight.merged.push_back(merged);
  Job::Step& step = steps.emplace_back(Job::Step{.destroy = {}, .create = {merged}});
  for (const Returned& one : group) {
    const Extent alone{extent_ids_.next(), one.extent.size};
    step.destroy.push_back(one.extent.id);
    step.group.push_back({one.lease, alone});
    flight.attempts.push_back({.extent = alone, .lease = one.lease, .merged = merged.id});
  }
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

void Store::retry_now(TimePoint now) {
  pause_ = Refill::kFirstPause;
  retry_at_ = std::min(retry_at_, now);
  refill_.hurry(now);
}

void Store::retry_now(LeaseId lease, TimePoint now) {
  preferred_.insert(lease);
  retry_now(now);
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
  const std::size_t most = can_prove() ? kMostProofs : 0;
  if (most != 0 && !preferred_.empty()) {
    std::stable_partition(put_off_.begin(), put_off_.end(),
                          [&](const Attempt& one) { return preferred_.contains(one.lease); });
  }
  const auto end = put_off_.begin() + static_cast<std::ptrdiff_t>(std::min(put_off_.size(), most));
  Flight flight{.attempts = {put_off_.begin(), end}};
  put_off_.erase(put_off_.begin(), end);
  if (!put_off_.empty()) retry_at_ = now + pause_;
  std::vector<Job::Step> steps;
  for (Attempt& attempt : flight.attempts) {
    preferred_.erase(attempt.lease);
    steps.push_back(begin_proof(attempt, false));
  }
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
  room_seen_ = now;
  refill_.end(outcome, now);
}

std::optional<TimePoint> Store::next_deadline() const {
  std::optional<TimePoint> next;
  if (!put_off_.empty() && can_prove()) next = retry_at_;
  for (const auto& at : {refill_.next(), next_look()})
    if (at) next = std::min(*at, next.value_or(*at));
  return next;
}

}  // namespace gpumem::core
