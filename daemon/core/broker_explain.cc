#include <algorithm>

#include "base/check.h"
#include "daemon/core/broker.h"

// Why something is not granted, in figures; denial.cc makes words of them. And what is told to those who
// watch.

namespace gpumem::core {
namespace {

constexpr std::size_t kMostHolders = 16;

void largest_first(std::vector<Denial::Holder>& holders) {
  std::ranges::sort(holders, [](const auto& a, const auto& b) {
    if (a.charged != b.charged) return a.charged > b.charged;
    return a.session != b.session ? a.session < b.session : a.tenant < b.tenant;
  });
  if (holders.size() > kMostHolders) holders.resize(kMostHolders);
}

}  // namespace

// What keeps a request waiting: the first part of it that would not be granted by itself, or its turn.
Broker::Refusal Broker::obstacle(const Request& request) const {
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const Request::Part& part = request.parts[i];
    if (const TenantId limiting = ledger_.limiting(request.tenant, part.device, part.least)) {
      return {i, limit_reason(limiting, part.device)};
    }
    const auto verdict = ledger_.verdict(request.tenant, part.device, part.least,
                                         arbiter_.spoken_for(request.id, part.device));
    const bool fits = verdict == Ledger::Verdict::kFits;
    // What others are promised and have outside the pool is free, and stays so.
    if (fits && part.least <= ledger_.room(request.tenant, part.device)) continue;
    const bool too_much = fits || part.least > ledger_.ceiling(request.tenant, part.device);
    return {i, too_much ? Denial::Reason::kPoolSize : Denial::Reason::kNoMemory};
  }
  return {0, Denial::Reason::kTurn};
}

Denial::Reason Broker::limit_reason(TenantId limiting, DeviceIndex device) const {
  return ledger_.debt(limiting, device).is_zero() ? Denial::Reason::kTenantLimit : Denial::Reason::kDebt;
}

Denial Broker::denial_of(const Request& request, Refusal refusal, TimePoint now) const {
  const Request::Part& part = request.parts[refusal.part];
  const DeviceIndex device = part.device;
  const auto& slices = sessions_.at(request.session).slices;
  Denial denial;
  denial.reason = refusal.reason;
  denial.request = request.id;
  denial.session = request.session;
  denial.device = policy_.devices[device].uuid;
  denial.tenant = tenants_.at(request.tenant).name;
  denial.asked = part.wanted;
  denial.asked_min = part.least;
  if (const auto slice = slices.find(part.slice); slice != slices.end())
    denial.slice_limit = slice->second.limit;
  denial.quota = ledger_.quota(request.tenant, device);
  denial.charged = ledger_.used(request.tenant, device);
  TenantId limiting = ledger_.limiting(request.tenant, device, part.least);
  if (!limiting) limiting = request.tenant;
  denial.limiting_tenant = tenants_.at(limiting).name;
  denial.limiting_limit = ledger_.quota(limiting, device).limit;
  denial.limiting_charged = ledger_.used(limiting, device);
  denial.pool = ledger_.pool(device);
  denial.free = ledger_.free(device);
  denial.returning = ledger_.charges(device)[Charge::kReturning];
  for (const SessionId id : pressure_[device].asked)
    denial.asked_back += sessions_.at(id).asked.at(device).bytes;
  denial.kept_for_others = std::min(denial.free, ledger_.kept_for_others(request.tenant, device));
  denial.guaranteed_to_others = ledger_.promised(device).minus(ledger_.promised(request.tenant, device));
  denial.charged_to_others =
      ledger_.charges(device).total() - ledger_.charges(request.tenant, device).total();
  denial.waiters_ahead = arbiter_.waiting_before(request.id, device);
  denial.waited = now - request.asked;
  denial.wait_limit = request.wait;
  denial.soonest = soonest(request, refusal, now);
  denial.holders = holders(request.tenant, device);
  return denial;
}

Denial::Soonest Broker::soonest(const Request& request, Refusal refusal, TimePoint now) const {
  const Request::Part& part = request.parts[refusal.part];
  const DeviceIndex device = part.device;
  const ReclaimPolicy& reclaim = policy_.devices[device].reclaim;
  switch (refusal.reason) {
    case Denial::Reason::kSliceLimit:
      return {std::nullopt, "a slice with a higher limit could be opened at once"};
    case Denial::Reason::kPoolSize:
      if (part.least > ledger_.ceiling(request.tenant, device))
        return {std::nullopt, "never, unless promises to others are lowered"};
      return {std::nullopt, "when the tenant gives memory back, or promises to others are lowered"};
    case Denial::Reason::kTurn: return {std::nullopt, "when those who are first have been granted"};
    case Denial::Reason::kTenantLimit:
    case Denial::Reason::kDebt: {
      const TenantId limiting = ledger_.limiting(request.tenant, device, part.least);
      if (!limiting) return {std::nullopt, "when the tenant gives memory back"};
      const Bytes limit = ledger_.quota(limiting, device).limit;
      if (part.least > limit) return {std::nullopt, "never, unless the limit is raised"};
      // A limit includes what is kept below it, for whatever goes beyond that.
      const Bytes burst = part.least.minus(ledger_.claimable(request.tenant, device, limiting));
      const Bytes with_kept = ledger_.burst(limiting, device) + ledger_.promised(limiting, device);
      const Bytes over = std::max((ledger_.used(limiting, device) + part.least).minus(limit),
                                  burst.is_zero() ? Bytes{} : (with_kept + burst).minus(limit));
      if (ledger_.charges(limiting, device)[Charge::kReturning] >= over)
        return {policy_.return_grace,
                "memory of tenant '" + tenants_.at(limiting).name + "' is on its way back"};
      return {std::nullopt, "when tenant '" + tenants_.at(limiting).name + "' gives back " + to_string(over)};
    }
    case Denial::Reason::kNoMemory: break;
  }
  const Bytes there = ledger_.free(device) + coming(device, now);
  const Bytes lack = lack_of(ledger_, arbiter_, request, device, there);
  if (lack.is_zero()) {
    Duration within = policy_.return_grace;
    for (const auto& [id, sentence] : sentences_) {
      if (sentence.given_up_at > now && !leaving(sessions_.at(id), device).is_zero())
        within = std::max(within, sentence.kill_at - now + policy_.return_grace);
    }
    return {within, "memory is on its way back"};
  }
  const auto& asked = pressure_[device].asked;
  const bool is_rightful = arbiter_.is_claim(request.id, device) || arbiter_.next(device) == request.id;
  if (!asked.empty() && is_rightful) {
    TimePoint until = now;
    for (const SessionId id : asked) until = std::max(until, sessions_.at(id).asked.at(device).deadline);
    const bool is_forced =
        arbiter_.is_claim(request.id, device) && reclaim.escalation == Escalation::kEndSession;
    if (until == now && !is_forced)
      return {std::nullopt, "borrowers were asked to give memory back, and have not"};
    return {until - now + (is_forced ? reclaim.grace : Duration::zero()),
            is_forced ? "borrowers were asked to give memory back, and are ended if they do not"
                      : "borrowers were asked to give memory back"};
  }
  return {std::nullopt,
          "when others give back " + to_string(lack) +
              "; they are not asked to, since none would still have more than this tenant then"};
}

std::vector<Denial::Holder> Broker::holders(TenantId tenant, DeviceIndex device) const {
  std::vector<Denial::Holder> all;
  for (const SessionId id : tenants_.at(tenant).sessions) {
    const Session& session = sessions_.at(id);
    Bytes charged;
    for (const auto& [slice_id, slice] : session.slices) {
      if (slice.device == device) charged += slice.charged;
    }
    if (const auto outside = session.outside.find(device); outside != session.outside.end())
      charged += outside->second.total();
    if (!charged.is_zero())
      all.push_back({id, session.peer.pid, session.peer.command, charged, tenants_.at(tenant).name});
  }
  largest_first(all);
  return all;
}

std::vector<Denial::Holder> Broker::other_tenants(TenantId tenant, DeviceIndex device) const {
  std::vector<Denial::Holder> all;
  for (const auto& [id, other] : tenants_) {
    const Bytes used = ledger_.used(id, device);
    if (id != tenant && !other.sessions.empty() && !used.is_zero())
      all.push_back({{}, 0, "", used, other.name});
  }
  largest_first(all);
  return all;
}

// ---- Explanations on demand ----

Result<Explanation> Broker::explain_session(SessionId id, bool everything, TimePoint now) const {
  const auto session = sessions_.find(id);
  if (session == sessions_.end()) {
    return Error{Code::kNotFound, "there is no session " + std::to_string(id.value) + "; see `gpumem ps`"};
  }
  return explanation_of(session->second.tenant, {id}, everything, now);
}

Result<Explanation> Broker::explain_tenant(const std::string& name, bool everything, TimePoint now) const {
  const auto tenant = tenant_by_name_.find(name);
  if (tenant == tenant_by_name_.end())
    return Error{Code::kNotFound, "there is no tenant '" + name + "'; see `gpumem tenants`"};
  std::vector<SessionId> sessions;
  for (const auto& [id, session] : sessions_) {
    if (is_below(session.tenant, tenant->second)) sessions.push_back(id);
  }
  return explanation_of(tenant->second, sessions, everything, now);
}

Explanation Broker::explanation_of(TenantId tenant, const std::vector<SessionId>& sessions, bool everything,
                                   TimePoint now) const {
  Explanation explanation{tenants_.at(tenant).name, {}, {}};
  for (DeviceIndex device = 0; device < policy_.devices.size(); ++device)
    explanation.devices.push_back(standing(tenant, device));
  std::vector<RequestId> requests;
  for (const SessionId session : sessions) {
    for (const RequestId id : arbiter_.requests_of(session)) requests.push_back(id);
  }
  std::ranges::sort(requests);
  for (const RequestId id : requests) {
    const Request& request = *arbiter_.find(id);
    for (std::size_t part = 0; part < request.parts.size(); ++part) {
      const Refusal refusal = obstacle(request);
      Denial denial =
          denial_of(request, {part, refusal.part == part ? refusal.reason : Denial::Reason::kTurn}, now);
      if (everything) denial.other_tenants = other_tenants(request.tenant, request.parts[part].device);
      explanation.waiting.push_back(std::move(denial));
    }
  }
  return explanation;
}

Standing Broker::standing(TenantId tenant, DeviceIndex device) const {
  Standing standing{.device = device,
                    .quota = ledger_.quota(tenant, device),
                    .charged = ledger_.used(tenant, device),
                    .declared = {},
                    .overhead = {},
                    .available = ledger_.available(tenant, device, arbiter_.spoken_for({}, device)),
                    .burst = ledger_.burst(tenant, device),
                    .debt = ledger_.debt(tenant, device),
                    .asked_back = {},
                    .asked_back_until = {}};
  for (const auto& [id, session] : sessions_) {
    if (!is_below(session.tenant, tenant)) continue;
    if (const auto outside = session.outside.find(device); outside != session.outside.end()) {
      standing.declared += outside->second.declared;
      standing.overhead += outside->second.overhead;
    }
    if (const auto asked = session.asked.find(device);
        asked != session.asked.end() && !asked->second.bytes.is_zero()) {
      standing.asked_back += asked->second.bytes;
      standing.asked_back_until =
          std::min(standing.asked_back_until.value_or(asked->second.deadline), asked->second.deadline);
    }
  }
  return standing;
}

// ---- Events ----

std::vector<Event> Broker::take_events() { return std::exchange(events_, {}); }

Event& Broker::note(Event::Kind kind, TimePoint now) {
  Event& event = events_.emplace_back();
  event.kind = kind;
  event.at = now;
  return event;
}

Event& Broker::note(Event::Kind kind, const Session& session, TimePoint now) {
  Event& event = note(kind, now);
  event.session = session.id;
  event.pid = session.peer.pid;
  event.tenant = tenants_.at(session.tenant).name;
  return event;
}

// Of a session's extents that fare the same at the same moment, one event tells.
void Broker::note_extent(Event::Kind kind, const Lease& lease, TimePoint now) {
  const bool goes_on = !events_.empty() && events_.back().kind == kind &&
                       events_.back().session == lease.session && events_.back().device == lease.device &&
                       events_.back().at == now;
  Event& event = goes_on ? events_.back() : note(kind, sessions_.at(lease.session), now);
  event.device = lease.device;
  event.bytes += lease.extent.size;
}

}  // namespace gpumem::core
