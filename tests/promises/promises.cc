#include "tests/promises/promises.h"

#include <algorithm>

namespace gpumem::core::promises {
namespace {

std::string on(DeviceIndex device) { return " on device " + std::to_string(device); }
std::string session_name(SessionId session, const SessionFacts& facts) {
  return "session " + std::to_string(session.value) + " of " + facts.tenant;
}

}  // namespace

std::string Promises::check(const Happened& happened, const State& state) {
  const Accounts accounts = broker_.accounts();
  const Jobs jobs = broker_.jobs_by_number();
  if (before_.empty()) before_ = accounts;
  std::vector<bool> excused = state.stolen;
  for (DeviceIndex device = 0; device < broker_.device_count(); ++device) {
    if (!books_.lost(device).is_zero()) excused[device] = true;
    const bool in_debt = std::ranges::any_of(accounts, [&](const auto& entry) {
      return entry.first.second == device && entry.second.used() > entry.second.quota.limit;
    });
    const bool is_wanted = in_debt || std::ranges::any_of(state.open, [&](const auto& entry) {
                             return std::ranges::any_of(
                                 entry.second.least, [&](const auto& part) { return part.first == device; });
                           });
    const auto note = [&](std::map<DeviceIndex, TimePoint>& since, bool is_so) {
      if (is_so)
        since.try_emplace(device, state.now);
      else
        since.erase(device);
    };
    note(indebted_, in_debt);
    note(wanted_, is_wanted);
  }
  std::string fault = check_books(accounts, jobs, state);
  const auto also = [&](std::string more) {
    if (fault.empty()) fault = std::move(more);
  };
  note_inherited(happened);
  if (!happened.grants.empty()) also(check_limits(happened, accounts, state));
  for (const auto& [session, signal] : happened.signals) also(check_signal(session, signal, accounts, state));
  for (const auto& [pid, signal] : happened.foreign_signals) also(check_foreign_signal(pid, signal, state));
  also(check_bells(happened, state));
  also(claims_.update(broker_, state.open, accounts, jobs, excused, state.now));
  also(check_jobs(happened, jobs, state));
  also(check_line(accounts, jobs, state));
  also(check_answers(state));
  before_ = accounts;
  return fault;
}

// ---- P1: charges within the pool, grants within the limits, the ledger as the world's books ----

std::string Promises::check_books(const Accounts& accounts, const Jobs& jobs, const State& state) const {
  std::map<std::pair<std::string, DeviceIndex>, Bytes> own;
  std::vector<Bytes> sums(broker_.device_count());
  for (const auto& [id, job] : jobs) {
    for (DeviceIndex device = 0; device < sums.size(); ++device) {
      if (job.devices[device].reserved.is_zero()) continue;
      own[{job.tenant, device}] += job.devices[device].reserved;
      sums[device] += job.devices[device].reserved;
    }
  }
  for (const auto& [session, facts] : state.sessions) {
    const auto charges = books_.charges_of(session);
    for (DeviceIndex device = 0; device < charges.size(); ++device) {
      if (charges[device].is_zero()) continue;
      own[{facts.tenant, device}] += charges[device];
      sums[device] += charges[device];
    }
  }
  const auto views = broker_.devices();
  for (DeviceIndex device = 0; device < views.size(); ++device) {
    if (views[device].charges.total() > views[device].policy.pool)
      return "P1: charges over the pool" + on(device);
    if (views[device].charges.total() != sums[device])
      return "P1: the ledger has " + to_string(views[device].charges.total()) + on(device) + ", the world " +
             to_string(sums[device]);
  }
  for (const auto& [key, bytes] : own) {
    const auto account = accounts.find(key);
    const Bytes charged = account == accounts.end() ? Bytes{} : account->second.leases;
    if (charged != bytes)
      return "P1: tenant " + key.first + " is charged " + to_string(charged) + on(key.second) + ", and has " +
             to_string(bytes);
  }
  return {};
}

// A job's sessions are lent no more than its limit together; what it has besides is reserved. Their contexts
// count, too, if the administrator says so, and may be more than there is room for.
std::string Promises::check_jobs(const Happened& happened, const Jobs& jobs, const State& state) {
  crowded_jobs_.insert(happened.inheriting.begin(), happened.inheriting.end());
  auto pinned = broker_.pinned_by_jobs();
  for (const auto& [id, job] : jobs) {
    const std::string name = "job " + std::to_string(id.value);
    for (DeviceIndex device = 0; device < broker_.device_count(); ++device) {
      Bytes lent;
      for (const auto& [session, facts] : state.sessions)
        if (facts.job == id) lent += books_.charges_of(session)[device];
      lent += pinned[{id, device}];
      const DevicePolicy& policy = broker_.device(device);
      const Bytes contexts = policy.is_host() ? Bytes{} : job.devices[device].outside;
      if (!contexts.is_zero() && !policy.contexts_in_limit)
        return "P1: " + name + " is charged for contexts" + on(device);
      lent += contexts;
      if (lent != on_loan(job, device))
        return "P1: " + name + " is charged " + to_string(on_loan(job, device)) + on(device) + ", and has " +
               to_string(lent);
      if (job.devices[device].charged - contexts > job.devices[device].limit && !crowded_jobs_.contains(id))
        return "P1: " + name + " is past its limit" + on(device);
    }
  }
  return {};
}

// A request that waits alone is the first in its line: it is granted what jobs have reserved and not used for
// long enough.
std::string Promises::check_line(const Accounts& accounts, const Jobs& jobs, const State& state) const {
  if (jobs.empty()) return {};
  const auto views = broker_.devices();
  const auto parents = broker_.parents();
  for (DeviceIndex device = 0; device < views.size(); ++device) {
    if (!broker_.device(device).reclaim.lend_guarantees || views[device].waiting != 1 || state.stolen[device])
      continue;
    const auto is_it = [&](const auto& entry) {
      const OpenRequest& one = entry.second;
      return !one.granted && one.honest && !one.is_context && one.least.size() == 1 &&
             one.least.front().first == device;
    };
    const auto found = std::ranges::find_if(state.open, is_it);
    if (found == state.open.end()) continue;
    const OpenRequest& request = found->second;
    const Bytes least = request.least.front().second;
    const Account& own = accounts.at({request.tenant, device});
    const auto job = jobs.find(request.job);
    const bool over_limit = own.used() + least > own.quota.limit || !parents.at(request.tenant).empty() ||
                            (job != jobs.end() &&
                             job->second.devices[device].charged + least > job->second.devices[device].limit);
    if (over_limit) continue;
    Bytes there = views[device].free;
    for (const auto& [key, last] : state.jobs_used) {
      const auto other = jobs.find(key.first);
      const bool is_idle = last + broker_.policy().reserve_idle + ClaimClock::kSlack <= state.now;
      if (other != jobs.end() && key.second == device && key.first != request.job && is_idle)
        there += other->second.devices[device].reserved;
    }
    // What an elastic pool can create comes by itself.
    const bool comes = views[device].policy.is_elastic() && least <= views[device].free;
    if (least <= there && !comes)
      return "P10: request " + std::to_string(found->first.value) + " waits for what jobs do not use" +
             on(device);
  }
  return {};
}

void Promises::note_inherited(const Happened& happened) {
  if (happened.inherited.empty()) return;
  const auto parents = broker_.parents();
  for (const auto& [of, bytes] : happened.inherited)
    for (std::string above = parents.at(of.first); !above.empty(); above = parents.at(above))
      crowded_.emplace(above, of.second);
}

std::string Promises::check_limits(const Happened& happened, const Accounts& accounts,
                                   const State& state) const {
  const auto parents = broker_.parents();
  for (const auto& [session, device] : happened.grants) {
    const auto facts = state.sessions.find(session);
    if (facts == state.sessions.end()) continue;
    // A charge that comes with memory of a region passes any limit, of tenants above, too.
    const auto inherited = [&, device = device](const std::string& tenant) {
      Bytes sum;
      for (const auto& [of, bytes] : happened.inherited) {
        std::string at = of.second == device ? of.first : "";
        while (!at.empty() && at != tenant) at = parents.at(at);
        if (!at.empty()) sum += bytes;
      }
      return sum;
    };
    const Account& own = accounts.at({facts->second.tenant, device});
    if (own.used().minus(inherited(facts->second.tenant)) > own.quota.limit)
      return "P1: a grant takes " + facts->second.tenant + " past its limit" + on(device);
    for (std::string above = parents.at(facts->second.tenant); !above.empty(); above = parents.at(above)) {
      // A declaration counts above its tenant with no more than the tenant may have; here, for certain, with
      // what is guaranteed to it. It does not hold up a claim where charges that came with regions have left
      // the limit without room for all that is guaranteed.
      Bytes counted;
      for (const auto& [name, parent] : parents) {
        if (parent != above) continue;
        const Account& child = accounts.at({name, device});
        const Bytes declared =
            crowded_.contains({above, device}) ? Bytes{} : std::min(child.used(), child.quota.guarantee);
        counted += std::max(child.leases, declared).minus(inherited(name));
      }
      if (counted > accounts.at({above, device}).quota.limit)
        return "P1: a grant takes " + above + " past its limit" + on(device);
    }
  }
  return {};
}

// ---- P3, P4: who is ended, and after what ----

bool Promises::is_past_broker(std::int64_t pid) const {
  if (!broker_.policy().past_broker.end) return false;
  return std::ranges::any_of(
      excess_, [&](const auto& entry) { return entry.first.first == pid && entry.second >= 2; });
}

void Promises::seen(std::int64_t pid, DeviceIndex device, Bytes own) {
  int& looks = excess_[{pid, device}];
  looks = own > broker_.policy().past_broker.allowance ? looks + 1 : 0;
}

// A request that is met may be followed by another one that needs the same memory.
bool Promises::waits_long(DeviceIndex device, Duration time, TimePoint now) const {
  const auto wanted = wanted_.find(device);
  return wanted != wanted_.end() && wanted->second + time <= now;
}

bool Promises::may_be_ended(SessionId session, const SessionFacts& facts, DeviceIndex device,
                            const Accounts& accounts, const State& state) const {
  const ReclaimPolicy& reclaim = broker_.device(device).reclaim;
  if (reclaim.escalation != Escalation::kEndSession) return false;
  // Its own tenant, or one that is charged for what it shares.
  std::set<std::string> tenants{facts.tenant};
  bool shares = false;
  for (const Sharers* sharers : {&state.keepers, &state.entangled}) {
    const auto found = sharers->find({session, device});
    if (found == sharers->end()) continue;
    tenants.insert(found->second.begin(), found->second.end());
    shares = true;
  }
  const auto bursts = [&](const Accounts& all) {
    return std::ranges::any_of(tenants, [&](const std::string& tenant) {
      const auto account = all.find({tenant, device});
      return account != all.end() && account->second.used() > account->second.quota.guarantee;
    });
  };
  if (!bursts(before_) && !bursts(accounts)) return false;
  const auto told = asked_.told(session, device);
  if (told && told->since + reclaim.deadline <= state.now && told->due <= state.now) return true;
  const bool holds_some =
      shares || !books_.charges_of(session)[device].is_zero() || facts.outside.contains(device);
  return !facts.has_lane && holds_some && waits_long(device, reclaim.deadline, state.now);
}

std::string Promises::check_kill(TimePoint terminated, TimePoint now) const {
  Duration grace = Duration::max();
  for (DeviceIndex device = 0; device < broker_.device_count(); ++device)
    grace = std::min(grace, broker_.device(device).reclaim.grace);
  return now < terminated + grace ? "P4: SIGKILL before the grace has passed" : "";
}

std::string Promises::check_signal(SessionId session, Signal signal, const Accounts& accounts,
                                   const State& state) {
  const auto facts = state.sessions.find(session);
  if (facts == state.sessions.end()) return "P4: a signal for a session that was forgotten";
  const std::string name = session_name(session, facts->second);
  if (facts->second.pid == 0) return "P4: " + name + " is ended, which has no process";
  const auto entangled = state.entangled.lower_bound({session, 0});
  const bool is_entangled = entangled != state.entangled.end() && entangled->first.first == session;
  if (facts->second.honest && !is_entangled) return "P3: " + name + " is ended, which is honest";
  const std::int64_t pid = facts->second.pid;
  if (!state.honest.contains(pid))
    return {};  // it has just ended, and the broker learns of it session by session
  if (signal == Signal::kKill) {
    const auto terminated = terminated_.find(pid);
    return terminated == terminated_.end() ? "P4: SIGKILL without SIGTERM for " + name
                                           : check_kill(terminated->second, state.now);
  }
  terminated_.try_emplace(pid, state.now);
  if (is_past_broker(pid)) return {};
  const auto reserves = [](const auto& entry) { return entry.second.reserves; };
  if (indebted_.empty() && std::ranges::all_of(state.open, reserves))
    return "P10: " + name + " is ended, and nobody waits but for a reservation";
  for (const auto& [other, of_other] : state.sessions) {  // a process is ended as a whole
    if (of_other.pid != pid) continue;
    for (DeviceIndex device = 0; device < broker_.device_count(); ++device)
      if (may_be_ended(other, of_other, device, accounts, state)) return {};
  }
  return "P4: " + name +
         " is ended, and was not asked, or not until the deadline, or is within its guarantee";
}

std::string Promises::check_foreign_signal(std::int64_t pid, Signal signal, const State& state) {
  const std::string name = "process " + std::to_string(pid);
  const auto honest = state.honest.find(pid);
  if (honest == state.honest.end()) return {};  // it has ended meanwhile
  if (honest->second) return "P3: " + name + " is ended, which is honest";
  if (!is_past_broker(pid)) return "P4: " + name + " is ended, and was not seen twice to hold too much";
  if (signal == Signal::kTerminate) {
    terminated_.try_emplace(pid, state.now);
    return {};
  }
  const auto terminated = terminated_.find(pid);
  return terminated == terminated_.end() ? "P4: SIGKILL without SIGTERM for " + name
                                         : check_kill(terminated->second, state.now);
}

std::string Promises::check_bells(const Happened& happened, const State& state) {
  for (const auto& [session, facts] : state.sessions) {
    if (!facts.has_lane) continue;
    const auto asked = broker_.asked_of(session);
    for (DeviceIndex device = 0; device < asked.size(); ++device) {
      const bool kept =
          !books_.kept(session, device).is_zero() || state.entangled.contains({session, device});
      if (!asked_.update(session, device, asked[device], happened.bells.contains(session), kept, state.now))
        return "P4: " + session_name(session, facts) + " is asked without a bell" + on(device);
      if (!asked[device].bytes.is_zero() && asked[device].deadline < asked_.told(session, device)->since)
        return "P4: " + session_name(session, facts) + " is told a deadline in the past" + on(device);
    }
  }
  return {};
}

// ---- P6: answers ----

std::string Promises::check_answers(const State& state) const {
  for (const auto& [id, request] : state.open) {
    Duration patience = broker_.policy().return_grace + ClaimClock::kSlack;
    for (const auto& [device, least] : request.least)
      patience = std::max(patience, broker_.device(device).reclaim.deadline + broker_.policy().return_grace +
                                        ClaimClock::kSlack);
    if (state.now > request.deadline + patience)
      return "P6: request " + std::to_string(id.value) + " has no answer";
  }
  return {};
}

std::string Promises::check_refusal(RequestId id, const OpenRequest& request, const std::string& why,
                                    TimePoint now) const {
  if (!claims_.is_promised(id) || now >= request.deadline) return {};
  return "P2: request " + std::to_string(id.value) + ", within its guarantee, is refused: " + why;
}

// ---- P5: the end ----

std::string Promises::check_end() const {
  if (broker_.session_count() != 0) return "P5: sessions are left";
  if (!broker_.jobs().empty()) return "P5: jobs are left";
  for (const DeviceView& view : broker_.devices()) {
    if (!view.charges.total().is_zero()) return "P5: charges are left";
    if (!view.outside.is_zero()) return "P5: declared memory is left";
    if (!view.asked_back.is_zero()) return "P5: somebody is asked for memory";
    if (view.waiting != 0) return "P5: somebody waits";
    const bool is_whole = view.missing.is_zero() || view.policy.is_elastic();
    if (!is_whole || view.free != view.policy.pool || view.warm != view.created)
      return "P5: of the pool of " + to_string(view.policy.pool) + ", " + to_string(view.free) +
             " are free, " + to_string(view.missing) + " missing, " + to_string(view.created) +
             " created and " + to_string(view.warm) + " warm";
  }
  for (const auto& [key, account] : broker_.accounts()) {
    if (!account.used().is_zero()) return "P5: tenant " + key.first + " is charged";
  }
  return broker_.next_deadline() ? "P5: the broker waits for a moment to come" : "";
}

}  // namespace gpumem::core::promises
