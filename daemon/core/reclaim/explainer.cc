#include "daemon/core/reclaim/explainer.h"

#include <algorithm>

#include "daemon/core/words/algorithms.h"
#include "daemon/core/words/policy.h"

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

std::optional<Refusal> Explainer::infeasible(const Request& request) const {
  const Session& session = state_.session(request.session);
  const Ledger& ledger = state_.ledger;
  const bool waits = state_.arbiter.find(request.id) != nullptr;
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const Request::Part& part = request.parts[i];
    const Bytes before =  // comes on top of it
        request.is_reservation() ? ledger.reservation(request.tenant, part.device) : Bytes{};
    for (TenantId tenant = request.tenant; tenant; tenant = ledger.parent(tenant)) {
      if (part.min_bytes > ledger.quota(tenant, part.device).limit.minus(before))
        return Refusal{i, Denial::Reason::kTenantLimit};
    }
    const TenantId owner = state_.tenants.owner_of(request.tenant);
    if (request.is_reservation() && part.min_bytes > ledger.quota(owner, part.device).reserve.minus(before))
      return Refusal{i, Denial::Reason::kTenantLimit};
    if (!waits && request.is_growth() && part.min_bytes > room_of_slice(session, part.slice)) {
      // The tenant's limit first: if both limits are exceeded, another slice would not help.
      const TenantId limiting =
          ledger.limiting(request.tenant, part.device, needed_of(ledger, request, part.device));
      return Refusal{i, limiting ? limit_reason(limiting, part.device) : Denial::Reason::kSliceLimit};
    }
    if (part.min_bytes > ledger.ceiling(request.tenant, part.device, request.may_borrow).minus(before))
      return Refusal{i, Denial::Reason::kPoolSize};
  }
  return std::nullopt;
}

Bytes Explainer::room_of_slice(const Session& session, SliceId id) const {
  const Slice& slice = session.slices.at(id);
  return slice.limit.minus(slice.held + state_.arbiter.waiting_bytes(id));
}

Refusal Explainer::obstacle(const Request& request) const {
  const Ledger& ledger = state_.ledger;
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const Request::Part& part = request.parts[i];
    const Bytes needed = needed_of(ledger, request, part.device);
    if (const TenantId limiting = ledger.limiting(request.tenant, part.device, needed))
      return {i, limit_reason(limiting, part.device)};
    if (exceeds_reserve(request, part)) return {i, Denial::Reason::kTenantLimit};
    const auto verdict =
        ledger.verdict(request.tenant, part.device, needed, state_.arbiter.terms_of(request, part.device));
    const bool fits = verdict == Ledger::Verdict::kFits;
    // Other tenants can use up their guarantee outside the pool. Memory left free by that is out of reach.
    if (fits && needed <= ledger.room(request.tenant, part.device)) continue;
    const bool too_much =
        fits || part.min_bytes > ledger.ceiling(request.tenant, part.device, request.may_borrow);
    return {i, too_much ? Denial::Reason::kPoolSize : Denial::Reason::kNoMemory};
  }
  return {0, Denial::Reason::kTurn};
}

bool Explainer::exceeds_reserve(const Request& request, const Request::Part& part) const {
  return request.is_reservation() && part.min_bytes > state_.ledger.reservable(request.tenant, part.device);
}

Denial::Reason Explainer::limit_reason(TenantId limiting, DeviceIndex device) const {
  return state_.ledger.debt(limiting, device).is_zero() ? Denial::Reason::kTenantLimit
                                                        : Denial::Reason::kDebt;
}

Denial Explainer::denial_of(const Request& request, const Refusal& refusal, TimePoint now) const {
  Denial denial = figures_of(request, refusal, now);
  denial.holders = holders(asked_of(request, denial), request.parts[refusal.part].device);
  return denial;
}

Denial Explainer::figures_of(const Request& request, const Refusal& refusal, TimePoint now) const {
  Denial denial = quick_figures_of(request, refusal, now);
  denial.asked_back = reclaimer_.asked_back(request.parts[refusal.part].device);
  denial.soonest = soonest(request, refusal, now);
  return denial;
}

Denial Explainer::quick_figures_of(const Request& request, const Refusal& refusal, TimePoint now) const {
  const Request::Part& part = request.parts[refusal.part];
  const DeviceIndex device = part.device;
  const Ledger& ledger = state_.ledger;
  const auto& slices = state_.session(request.session).slices;
  TenantId limiting = ledger.limiting(request.tenant, device, needed_of(ledger, request, device));
  const TenantId tenant = state_.tenants.owner_of(request.tenant);
  const bool has_limiting{limiting};
  if (!limiting) limiting = tenant;
  Denial denial;
  denial.reason = refusal.reason;
  denial.request = request.id;
  denial.session = request.session;
  denial.device = state_.policy.devices[device].uuid;
  denial.device_name = name_of(state_.policy, device);
  denial.tenant = state_.tenants.name(tenant);
  denial.asked = part.bytes;
  denial.asked_min = part.min_bytes;
  if (const auto slice = slices.find(part.slice); slice != slices.end())
    denial.slice_limit = slice->second.limit;
  denial.quota = ledger.quota(tenant, device);
  denial.charged = ledger.used(tenant, device);
  denial.limiting_tenant = state_.tenants.name(limiting);
  const bool is_job = state_.tenants.is_job(limiting);
  denial.limit = is_job ? Denial::Limit::kJobs : Denial::Limit::kTenants;
  denial.limiting_limit = ledger.quota(limiting, device).limit;
  denial.limiting_charged = ledger.used(limiting, device);
  denial.limiting_reserved = ledger.charges(limiting, device)[Charge::kReserved];
  if (is_job && !state_.policy.devices[device].is_host())
    denial.limiting_contexts = ledger.outside(limiting, device);
  denial.reserved = ledger.charges(tenant, device)[Charge::kReserved];
  const Bytes of_others = denial.limiting_reserved.minus(ledger.reserved(request.tenant, device));
  denial.by_jobs = !of_others.is_zero() && ledger.excess_at(limiting, request.tenant, device,
                                                            needed_of(ledger, request, device)) <= of_others;
  if (!has_limiting && exceeds_reserve(request, part)) {
    denial.limit = Denial::Limit::kReserve;
    denial.limiting_limit = ledger.quota(tenant, device).reserve;
    denial.limiting_charged = ledger.reservations(tenant, device);
  }
  if (has_limiting)
    denial.limiting_kept = (ledger.used_and_kept(limiting, device) - ledger.used(limiting, device))
                               .minus(ledger.claimable(request.tenant, device, limiting));
  if (refusal.reason == Denial::Reason::kPoolSize) name_ceiling(denial, request, part);
  denial.pool = ledger.pool(device);
  denial.free = ledger.free_or_creatable(device);
  denial.context = request.context;
  denial.missing = state_.missing(device);
  denial.contexts = state_.pool_of_contexts(device);
  denial.returning = ledger.charges(device)[Charge::kReturning];
  denial.kept_for_others = std::min(denial.free, ledger.kept_for_others(request.tenant, device));
  denial.guaranteed_to_others = ledger.promised(device).minus(ledger.promised(tenant, device));
  denial.charged_to_others = ledger.charges(device).total() - ledger.charges(tenant, device).total();
  denial.unanswered = ledger.lends(device) ? ledger.unanswered(tenant, device) : Bytes{};
  denial.waiters_ahead = state_.arbiter.waiting_before(request.id, device);
  denial.waited = now - request.asked + request.unread;
  denial.unread = request.unread;
  denial.wait_limit = request.wait + request.before;
  return denial;
}

// The limit that the part can never be within, because others below it are guaranteed some of it.
void Explainer::name_ceiling(Denial& denial, const Request& request, const Request::Part& part) const {
  const auto ceiling = state_.ledger.find_ceiling(request.tenant, part.device, request.may_borrow);
  if (!ceiling.owner || part.min_bytes <= ceiling.bytes) return;
  denial.limit = Denial::Limit::kTenants;
  denial.limiting_tenant = state_.tenants.name(ceiling.owner);
  denial.limiting_limit = state_.ledger.quota(ceiling.owner, part.device).limit;
  denial.limiting_charged = state_.ledger.used(ceiling.owner, part.device);
  denial.limiting_kept = ceiling.promised_to_others;
}

// ---- How soon ----

Denial::Soonest Explainer::soonest(const Request& request, const Refusal& refusal, TimePoint now) const {
  const Request::Part& part = request.parts[refusal.part];
  switch (refusal.reason) {
    case Denial::Reason::kSliceLimit:
      return {std::nullopt, "a slice with a higher limit could be opened at once"};
    case Denial::Reason::kPoolSize:
      if (part.min_bytes > state_.ledger.ceiling(request.tenant, part.device, request.may_borrow))
        return {std::nullopt,
                "never, unless promises to others are lowered, or the limit above them is raised"};
      return {std::nullopt, "when the tenant gives memory back, or promises to others are lowered"};
    case Denial::Reason::kTurn: return {std::nullopt, "when those who are first have been granted"};
    case Denial::Reason::kTenantLimit:
    case Denial::Reason::kDebt: return soonest_within_limit(request, part, now);
    case Denial::Reason::kNoMemory: break;
  }
  return soonest_memory(request, part, now);
}

Denial::Soonest Explainer::soonest_within_limit(const Request& request, const Request::Part& part,
                                                TimePoint now) const {
  const Ledger& ledger = state_.ledger;
  const DeviceIndex device = part.device;
  const Bytes needed = needed_of(ledger, request, device);
  const TenantId limiting = ledger.limiting(request.tenant, device, needed);
  if (!limiting && exceeds_reserve(request, part))
    return {std::nullopt, "when the reservation of another job of the tenant ends"};
  if (!limiting) return {std::nullopt, "when the tenant gives memory back"};
  const bool is_job = state_.tenants.is_job(limiting);
  const std::string who = is_job ? "the job" : "tenant '" + state_.tenants.name(limiting) + "'";
  const Bytes limit = ledger.quota(limiting, device).limit;
  if (part.min_bytes > limit) return {std::nullopt, "never, unless the limit is raised"};
  // Beyond the claimable part, a limit includes the memory that is kept below it.
  const Bytes burst = needed.minus(ledger.claimable(request.tenant, device, limiting));
  const Bytes with_kept = ledger.used_and_kept(limiting, device);
  const Bytes over = std::max((ledger.used(limiting, device) + needed).minus(limit),
                              burst.is_zero() ? Bytes{} : (with_kept + burst).minus(limit));
  if (ledger.charges(limiting, device)[Charge::kReturning] >= over)
    return {state_.policy.return_grace, "memory of " + who + " is on its way back"};
  const std::string when = "when " + who + " gives back " + to_string(over);
  if (const auto until = asked_until(device, limiting); until && *until > now)
    return {*until - now, when + "; its processes were asked to"};
  return {std::nullopt, when};
}

Denial::Soonest Explainer::soonest_memory(const Request& request, const Request::Part& part,
                                          TimePoint now) const {
  const DeviceIndex device = part.device;
  const ReclaimPolicy& reclaim = state_.policy.devices[device].reclaim;
  const Bytes there = state_.ledger.free_or_creatable(device) + reclaimer_.coming(device, now);
  const Bytes lack = lack_of(state_.ledger, state_.arbiter, request, device, there);
  if (lack.is_zero()) {
    Duration within = state_.policy.return_grace;
    if (const auto kill = reclaimer_.terminations().latest_kill(device, now))
      within = std::max(within, *kill - now + state_.policy.return_grace);
    return {within, "memory is on its way back"};
  }
  auto asked = asked_until(device, {});
  const bool is_claim = state_.arbiter.is_claim(request.id, device);
  const bool is_forced = is_claim && reclaim.escalation == Escalation::kEndSession;
  if (const auto liable = is_forced ? reclaimer_.liable_until(device) : std::nullopt)
    asked = std::max(asked.value_or(*liable), *liable);
  if (!asked || !(is_claim || state_.arbiter.next(device) == request.id)) {
    if (lack <= state_.missing_besides_contexts(device))
      return {std::nullopt, "when processes past the broker free " + to_string(lack) +
                                " of the device; see `gpumem reconcile`"};
    if (const Bytes of_contexts = state_.pool_of_contexts(device); lack <= of_contexts)
      return {std::nullopt, "when programs end whose contexts take " + to_string(of_contexts) +
                                " of the pool, or others give back " + to_string(lack)};
    std::string when = "when others give back " + to_string(lack);
    if (has_emptied(device, request.tenant))
      return {std::nullopt, when + "; programs were asked, and say that they have no more to give"};
    when += "; they are not asked to, since ";
    const bool is_within_guarantee =
        request.is_reservation() && part.min_bytes <= state_.ledger.claimable(request.tenant, device);
    return {
        std::nullopt,
        when + (is_within_guarantee
                    ? "a reservation is no claim: without --wait the command starts at once, and what it "
                      "allocates within the guarantee is asked for"
                    : "beside what is guaranteed to them or reserved none would still have more than this "
                      "tenant then")};
  }
  const TimePoint until = std::max(now, *asked);
  if (until == now && !is_forced)
    return {std::nullopt, "borrowers were asked to give memory back, and have not"};
  return {until - now + (is_forced ? reclaim.grace : Duration::zero()),
          is_forced ? "borrowers were asked to give memory back, and are ended if they do not"
                    : "borrowers were asked to give memory back"};
}

// Whether a session of another tenant has said that it has no more to give.
bool Explainer::has_emptied(DeviceIndex device, TenantId tenant) const {
  const TenantId owner = state_.tenants.owner_of(tenant);
  return std::ranges::any_of(reclaimer_.emptied(device), [&](const auto& one) {
    return !state_.tenants.is_below(state_.session(one.first).leaf, owner);
  });
}

std::optional<TimePoint> Explainer::asked_until(DeviceIndex device, TenantId below) const {
  std::optional<TimePoint> until;
  for (const auto* asked : {&reclaimer_.asked(device), &reclaimer_.asked_for_siblings(device)}) {
    for (const SessionId id : *asked) {
      const Session& session = state_.session(id);
      const TimePoint due = session.asked.at(device).due();
      if (state_.tenants.is_below(session.leaf, below)) until = std::max(until.value_or(due), due);
    }
  }
  return until;
}

// ---- Holders ----

// The job or the tenant whose holders a denial names.
TenantId Explainer::asked_of(const Request& request, const Denial& denial) const {
  return denial.limit == Denial::Limit::kJobs ? request.tenant : state_.tenants.owner_of(request.tenant);
}

std::vector<Denial::Holder> Explainer::holders(TenantId tenant, DeviceIndex device) const {
  std::vector<std::pair<Bytes, SessionId>> all;
  for (const SessionId id : state_.tenants.sessions_of(tenant)) {
    const Session& session = state_.session(id);
    Bytes charged = session.holding(device).charges.total();
    if (const auto outside = session.outside.find(device); outside != session.outside.end())
      charged += outside->second.total();
    if (!charged.is_zero()) all.emplace_back(charged, id);
  }
  keep_largest(all, kMostHolders);
  std::vector<Denial::Holder> holders;  // copies of names for these alone: there may be thousands of sessions
  for (const auto& [charged, id] : all) {
    const Session& session = state_.session(id);
    holders.push_back({id, session.peer.pid, session.peer.command, charged, session.tenant_name});
  }
  return holders;
}

std::vector<Denial::Holder> Explainer::largest_tenants(DeviceIndex device) const {
  std::vector<Denial::Holder> all;
  for (const auto& [id, tenant] : state_.tenants.all()) {
    const Bytes used = state_.ledger.used(id, device);
    const bool has_own = !tenant.sessions.empty() || !tenant.leaves.empty();
    if (tenant.owner == id && has_own && !used.is_zero()) all.push_back({{}, 0, "", used, tenant.name});
  }
  largest_first(all);
  return all;
}

// ---- Explanations on demand ----

Result<Explanation> Explainer::explain_session(SessionId id, bool everything, TimePoint now) const {
  const Session* session = state_.find(id);
  if (session == nullptr)
    return Error{Code::kNotFound, "there is no session " + std::to_string(id.value) + "; see `gpumem ps`"};
  return explanation_of(session->tenant, {id}, everything, now);
}

Result<Explanation> Explainer::explain_tenant(const std::string& name, bool everything, TimePoint now) const {
  const Tenant* tenant = state_.tenants.find(name);
  if (tenant == nullptr)
    return Error{Code::kNotFound, "there is no tenant '" + name + "'; see `gpumem tenants`"};
  std::vector<SessionId> sessions;
  for (const TenantId id : state_.tenants.with_members(tenant->id)) {
    for (const SessionId session : state_.tenants.at(id).sessions) sessions.push_back(session);
  }
  return explanation_of(tenant->id, sessions, everything, now);
}

Result<Explanation> Explainer::explain_newcomer(std::uint32_t uid) const {
  const auto match = tenant_of(state_.policy, {.uid = uid, .gids = {}, .command = {}});
  if (!match) return match.error();
  if (const std::string name = user_tenant(uid); match->name != name)
    return Error{Code::kNotFound,
                 name + " is tenant '" + match->name + "'; see `gpumem why '" + match->name + "'`"};
  const Tenant* parent = state_.tenants.find(match->parent);
  Explanation explanation{.tenant = match->name, .devices = {}, .waiting = {}, .is_newcomer = true};
  for (DeviceIndex device = 0; device < state_.policy.devices.size(); ++device) {
    Standing& standing = explanation.devices.emplace_back();
    standing.device = device;
    standing.quota = match->quotas[device];
    standing.waiting = state_.arbiter.waiting(device);
    const GrantTerms terms{state_.arbiter.spoken_for({}, device)};
    standing.available = std::min(
        standing.quota.limit, parent != nullptr ? state_.ledger.available_on_demand(parent->id, device, terms)
                                                : state_.ledger.available_to_newcomers(device, terms));
  }
  return explanation;
}

Explanation Explainer::explanation_of(TenantId tenant, const std::vector<SessionId>& sessions,
                                      bool everything, TimePoint now) const {
  Explanation explanation{state_.tenants.name(tenant), standings(tenant, sessions), {}, 0};
  std::vector<RequestId> requests;
  for (const SessionId session : sessions) {
    for (const RequestId id : state_.arbiter.requests_of(session)) requests.push_back(id);
  }
  explanation.requests = requests.size();
  const auto most = std::min(requests.size(), kMostExplained);
  std::ranges::partial_sort(requests, requests.begin() + static_cast<std::ptrdiff_t>(most));
  requests.resize(most);
  Holders holders;
  Holders others;
  for (const RequestId id : requests) add_waiting(id, everything, holders, others, explanation, now);
  return explanation;
}

void Explainer::add_waiting(RequestId id, bool everything, Holders& holders, Holders& others,
                            Explanation& explanation, TimePoint now) const {
  const auto once = [](Holders& known, std::pair<TenantId, DeviceIndex> key, auto find) {
    const auto found = known.find(key);
    return found != known.end() ? found->second : known.emplace(key, find()).first->second;
  };
  const Request& request = *state_.arbiter.find(id);
  const Refusal refusal = obstacle(request);
  for (std::size_t part = 0; part < request.parts.size(); ++part) {
    const DeviceIndex device = request.parts[part].device;
    const auto reason = refusal.part == part ? refusal.reason : Denial::Reason::kTurn;
    Denial denial = figures_of(request, {part, reason}, now);
    const TenantId of = asked_of(request, denial);
    denial.holders = once(holders, {of, device}, [&] { return this->holders(of, device); });
    if (everything) {
      denial.other_tenants = once(others, {{}, device}, [&] { return largest_tenants(device); });
      std::erase_if(denial.other_tenants, [&](const auto& one) { return one.tenant == denial.tenant; });
    }
    explanation.waiting.push_back(std::move(denial));
  }
}

}  // namespace gpumem::core
