#include "daemon/core/sessions/jobs.h"

#include <algorithm>
#include <utility>

#include "base/text/printable.h"

namespace gpumem::core {
namespace {

/// A peak is recorded once it has grown by more than this part of the recorded one.
constexpr std::uint64_t kPeakPart = 16;

Bytes part_of(Bytes whole, std::uint64_t points) {
  return {static_cast<std::uint64_t>(static_cast<__uint128_t>(whole.count) * points / 10'000)};
}

}  // namespace

// ---- Begin and end ----

Result<JobBegun> Jobs::begin(Session& owner, const BeginJob& request, TimePoint now) {
  if (owned_.contains(owner.id)) return Error{Code::kFailedPrecondition, "the session has a job already"};
  if (owner.job) return Error{Code::kFailedPrecondition, "the session is in a job, so it cannot have one"};
  const bool has_host_limit = !request.host_limit.is_zero() || request.host_limit_points != 0;
  if (has_host_limit && std::ranges::none_of(state_.policy.devices, &DevicePolicy::is_host))
    return Error{Code::kFailedPrecondition,
                 "the broker has no host store, so a job can have no host limit of it: leave it out, or ask "
                 "the administrator to add [host] to gpumemd.toml"};
  if (!state_.tenants.at(owner.tenant).rest) {
    std::vector<Request> waiting;
    for (const SessionId id : state_.tenants.sessions_of(owner.tenant)) {
      for (Request& one : state_.arbiter.take_out(id)) waiting.push_back(std::move(one));
    }
    divide(owner.tenant);
    for (Request& one : waiting) one.tenant = state_.session(one.session).leaf;
    state_.arbiter.put_back(std::move(waiting));
  }
  CommandJob& job = add(ids_.next(), owner.tenant, quotas(owner.tenant, request));
  job.owner = owner.id;
  job.account = owner.peer.account();
  job.label = request.label;
  job.since = now;
  job.spent.begin(now);
  job.uid = owner.peer.user();
  owned_[owner.id] = job.id;
  state_.record(job);
  return JobBegun{job.id};
}

// Makes room for leaves of jobs beside the sessions in no job. The caller puts waiting requests in order
// anew.
void Jobs::divide(TenantId tenant) {
  const TenantId rest = state_.tenants.divide(tenant);
  for (const SessionId id : state_.tenants.at(rest).sessions) {
    state_.session(id).leaf = rest;
    state_.arbiter.set_tenant(id, rest, {}, rest);
  }
  for (auto& unasked : state_.unasked) {
    auto own = unasked.extract(tenant);
    if (own.empty()) continue;
    own.key() = rest;
    unasked.insert(std::move(own));
  }
}

CommandJob& Jobs::add(CommandJobId id, TenantId tenant, Quotas quotas) {
  CommandJob& job = state_.jobs[id];
  job.id = id;
  job.leaf = state_.tenants.add_job(tenant, "job " + std::to_string(id.value), std::move(quotas));
  job.devices.resize(state_.policy.devices.size());
  state_.job_of_leaf[job.leaf] = id;
  return job;
}

Quotas Jobs::quotas(TenantId tenant, const BeginJob& request) const {
  Quotas quotas;
  for (DeviceIndex device = 0; device < state_.policy.devices.size(); ++device) {
    const bool is_host = state_.policy.devices[device].is_host();
    const Bytes granularity = state_.policy.devices[device].granularity;
    const std::uint64_t points = is_host ? request.host_limit_points : request.limit_points;
    Bytes limit = is_host ? request.host_limit : request.limit;
    if (points != 0) limit = part_of(state_.ledger.ceiling(tenant, device), points);
    const bool has_one = !limit.is_zero() || points != 0;
    limit = std::max(std::min(limit, state_.ledger.pool(device)).rounded_down(granularity), granularity);
    quotas.push_back({{}, has_one ? limit : kUnlimited});
  }
  return quotas;
}

CommandJob* Jobs::owned_by(SessionId session) {
  const auto found = owned_.find(session);
  return found == owned_.end() ? nullptr : &state_.jobs.at(found->second);
}

const CommandJob* Jobs::find(CommandJobId id, TenantId tenant, const Peer& peer) const {
  const auto found = state_.jobs.find(id);
  if (found == state_.jobs.end()) return nullptr;
  const CommandJob& job = found->second;
  // Guarantees of others are not lent to a session that cannot be ended, and a reservation may contain such
  // memory.
  const Session* owner = state_.find(job.owner);
  if (owner != nullptr && owner->peer.can_be_ended && !peer.can_be_ended) return nullptr;
  return state_.tenants.owner_of(job.leaf) == tenant && job.account == peer.account() ? &job : nullptr;
}

JobAccount Jobs::account(const CommandJob& job) const {
  JobAccount account{{}, job.waited, job.denied};
  Bytes of_host;
  for (DeviceIndex device = 0; device < job.devices.size(); ++device) {
    Bytes& peak = state_.policy.devices[device].is_host() ? of_host : account.peak;
    peak = std::max(peak, job.devices[device].peak);
  }
  if (account.peak.is_zero()) account.peak = of_host;
  return account;
}

Bytes Jobs::level(const CommandJob& job, DeviceIndex device) const {
  const bool is_host = state_.policy.devices[device].is_host();
  return state_.ledger.on_loan(job.leaf, device) +
         (is_host ? state_.ledger.outside(job.leaf, device) : Bytes{});
}

void Jobs::lose_owner(SessionId owner, TimePoint now) {
  const auto found = owned_.find(owner);
  if (found == owned_.end()) return;
  CommandJob& job = state_.jobs.at(found->second);
  owned_.erase(found);
  job.owner = {};
  for (DeviceIndex device = 0; device < state_.reserving.size(); ++device) {
    job.devices[device].restored = {};
    if (state_.reserving[device].erase(job.id) != 0) state_.ledger.end_reservation(job.leaf, device);
  }
  state_.record(job);
  end_if_done(job.id, now);
}

void Jobs::end_if_done(CommandJobId id, TimePoint now) {
  const auto found = state_.jobs.find(id);
  if (found == state_.jobs.end() || found->second.owner) return;
  const TenantId leaf = found->second.leaf;
  if (!state_.tenants.at(leaf).sessions.empty()) return;
  note_closed(found->second, now);
  state_.jobs.erase(found);
  state_.job_of_leaf.erase(leaf);
  state_.tenants.end_job(leaf);
  state_.outbox.record(Checkpoint::CommandJobGone{id});
}

void Jobs::note_closed(CommandJob& job, TimePoint now) {
  job.spent.advance(now);
  state_.spent.erase({{}, job.id});
  Event& event = state_.outbox.note(Event::Kind::kClosed, now);
  event.tenant = state_.tenants.name(state_.tenants.owner_of(job.leaf));
  event.job = job.id;
  event.uid = job.uid;
  event.waited = job.waited;
  event.words = job.why;
  event.closing = std::make_shared<const Closing>(
      Closing{now - job.since, job.label, job.spent.sum.byte_seconds(), job.spent.peak, job.denied});
}

void Jobs::note_lent(CommandJob& job, DeviceIndex device, TimePoint now) {
  job.devices[device].idle_since = now;
  note_level(job, device);
}

void Jobs::note_level(CommandJob& job, DeviceIndex device) {
  CommandJob::OnDevice& one = job.devices[device];
  one.peak = std::max(one.peak, level(job, device));
  // Rarely, since a job may grow often.
  const Bytes known = one.recorded_peak;
  if (one.peak > known + Bytes{known.count / kPeakPart}) state_.record(job);
}

// Its owner waits for the reservation, and need not be a session of the job.
std::vector<TimePoint> Jobs::waiting_since(const CommandJob& job) const {
  std::vector<TimePoint> all;
  const auto add_of = [&](SessionId session) {
    for (const RequestId id : state_.arbiter.requests_of(session)) {
      const Request& request = *state_.arbiter.find(id);
      if (request.job == job.id) all.push_back(request.asked);
    }
  };
  const auto& sessions = state_.tenants.at(job.leaf).sessions;
  for (const SessionId session : sessions) add_of(session);
  if (!sessions.contains(job.owner)) add_of(job.owner);
  return all;
}

void Jobs::note_waited(CommandJob& job, Duration waited) {
  if (waited == Duration::zero()) return;
  job.waited += waited;
  state_.record(job);
}

void Jobs::note_denied(CommandJob& job, Duration waited, bool counts) {
  if (counts) ++job.denied;
  job.waited += waited;
  state_.record(job);
}

// ---- Reservations ----

void Jobs::note_reserved(CommandJob& job, DeviceIndex device, TimePoint now) {
  state_.reserving[device].insert(job.id);
  job.devices[device].idle_since = now;
  state_.record(job);
}

void Jobs::give_up(CommandJob& job, DeviceIndex device, Bytes bytes) {
  state_.ledger.give_up_reserved(job.leaf, device, bytes);
  if (state_.ledger.reservation(job.leaf, device).is_zero()) state_.reserving[device].erase(job.id);
  state_.record(job);
}

void Jobs::take_back(CommandJob& job, DeviceIndex device, Bytes bytes) {
  state_.ledger.add_reservation(job.leaf, device, bytes);
  state_.reserving[device].insert(job.id);
  state_.record(job);
}

// ---- Another policy ----

void Jobs::move(std::map<SessionId, TenantId>& to) {
  for (auto& [id, job] : state_.jobs) {
    const auto& sessions = state_.tenants.at(job.leaf).sessions;
    const auto found = to.find(job.owner ? job.owner : *sessions.begin());
    if (found == to.end() || state_.tenants.owner_of(job.leaf) == found->second) continue;
    if (!state_.tenants.at(found->second).rest) divide(found->second);
    state_.tenants.move_job(job.leaf, found->second);
    for (const SessionId member : sessions) to.try_emplace(member, state_.session(member).tenant);
  }
}

// ---- The restart ----

void Jobs::add_to(Checkpoint& checkpoint) const {
  for (const auto& [id, job] : state_.jobs) checkpoint.jobs.emplace(id, state_.checkpoint_of(job));
  checkpoint.last.job = ids_.last();
}

void Jobs::put(Session& session, const CommandJob& job) {
  state_.tenants.leave(session.leaf, session.id);
  session.leaf = job.leaf;
  state_.tenants.join(session.leaf, session.id);
}

void Jobs::restore(const std::map<CommandJobId, Checkpoint::CommandJob>& from,
                   const std::vector<std::optional<DeviceIndex>>& devices) {
  std::map<CommandJobId, std::vector<SessionId>> members;
  for (const SessionId id : state_.session_order) {
    if (const CommandJobId job = state_.session(id).job) members[job].push_back(id);
  }
  for (const auto& [id, one] : from) {
    const Session* owner = state_.find(one.owner);
    if (owner != nullptr && owner->ended) owner = nullptr;
    const auto& sessions = members[id];
    if (owner == nullptr && sessions.empty()) continue;
    const TenantId tenant = owner != nullptr ? owner->tenant : state_.session(sessions.front()).tenant;
    if (!state_.tenants.at(tenant).rest) divide(tenant);
    Quotas quotas(state_.policy.devices.size(), {{}, kUnlimited});
    for (std::size_t i = 0; i < one.limits.size(); ++i) {
      if (devices[i]) quotas[*devices[i]].limit = one.limits[i];
    }
    CommandJob& job = add(id, tenant, std::move(quotas));
    job.account = one.account;
    job.label = to_printable(one.label);
    job.since = one.since;
    job.waited = one.waited;
    job.denied = one.denied;
    job.spent.begin(one.since);
    job.uid = (owner != nullptr ? *owner : state_.session(sessions.front())).peer.user();
    if (owner != nullptr) {
      job.owner = owner->id;
      owned_[owner->id] = id;
    }
    for (const SessionId session : sessions) {
      if (state_.session(session).tenant == tenant) put(state_.session(session), job);
    }
  }
  for (const SessionId id : state_.session_order) {
    Session& session = state_.session(id);
    const auto found = state_.jobs.find(session.job);
    if (found == state_.jobs.end() || found->second.leaf != session.leaf) session.job = {};
  }
}

void Jobs::restore_reservations(const std::map<CommandJobId, Checkpoint::CommandJob>& from,
                                const std::vector<std::optional<DeviceIndex>>& devices, TimePoint now) {
  for (auto& [id, job] : state_.jobs) {
    const Checkpoint::CommandJob& before = from.at(id);
    for (std::size_t i = 0; i < before.reservations.size(); ++i) {
      if (!devices[i]) continue;
      const Bytes known = i < before.peaks.size() ? before.peaks[i] : Bytes{};
      const Bytes peak = std::max(known, level(job, *devices[i]));
      job.devices[*devices[i]] = {peak, known, now, job.owner ? before.reservations[i] : Bytes{}};
    }
  }
  for (DeviceIndex device = 0; device < state_.policy.devices.size(); ++device) reserve_restored(device);
}

void Jobs::reserve_restored(DeviceIndex device) {
  const Ledger& ledger = state_.ledger;
  for (auto& [id, job] : state_.jobs) {
    Bytes& restored = job.devices[device].restored;
    const Bytes on_loan = ledger.on_loan(job.leaf, device).minus(ledger.reservation(job.leaf, device));
    const Bytes bytes = std::min(restored, on_loan + ledger.free(device));
    if (bytes.is_zero()) continue;
    restored -= bytes;
    state_.ledger.add_reservation(job.leaf, device, bytes);
    state_.reserving[device].insert(id);
  }
}

}  // namespace gpumem::core
