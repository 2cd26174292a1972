#include "daemon/core/reclaim/reservations.h"

#include <algorithm>

namespace gpumem::core {
namespace {

// At most this many requests are visited at an event that their own tenants have no room for.
constexpr std::size_t kMostVisited = 64;

}  // namespace

bool Reservations::give_way(TimePoint now) {
  bool any = false;
  for (DeviceIndex device = 0; device < devices_.size(); ++device) {
    Device& one = devices_[device];
    if (state_.reserving[device].empty()) {
      one.due.reset();
      continue;
    }
    const std::pair seen(state_.ledger.revision(device), state_.arbiter.revision(device));
    if (seen == one.seen && !(one.due && *one.due <= now)) continue;
    one.seen = seen;
    one.due.reset();
    any |= give_way(device, now);
  }
  return any;
}

bool Reservations::give_way(DeviceIndex device, TimePoint now) {
  const bool any = pay(device);
  return give_way_to_line(device, now) || any;
}

void Reservations::pay() {
  for (DeviceIndex device = 0; device < devices_.size(); ++device)
    if (!state_.reserving[device].empty()) pay(device);
}

CommandJob* Reservations::covering(const Request& context) const {
  CommandJob* const job = state_.find_job(state_.session(context.session).job);
  const Request::Part& part = context.parts.front();
  return job != nullptr && state_.ledger.reserved(job->leaf, part.device) >= part.bytes ? job : nullptr;
}

std::optional<Granted> Reservations::grant_of_job(RequestId context) {
  const Request* const request = state_.arbiter.find(context);
  CommandJob* const job = request == nullptr || !request->is_context() ? nullptr : covering(*request);
  if (job == nullptr) return std::nullopt;
  const auto [device, bytes] = std::pair(request->parts.front().device, request->parts.front().bytes);
  jobs_.give_up(*job, device, bytes);
  auto granted = state_.arbiter.grant_out_of_turn(context);
  if (!granted) jobs_.take_back(*job, device, bytes);
  return granted;
}

void Reservations::give_way_to(const Request& context) {
  if (covering(context) != nullptr) return;
  const Session& session = state_.session(context.session);
  const DeviceIndex device = context.parts.front().device;
  const Bytes bytes = context.parts.front().bytes;
  for (const TenantId below : {session.leaf, session.tenant}) {
    const TenantId limiting = state_.ledger.limiting(context.tenant, device, bytes);
    const Bytes over = limiting ? state_.ledger.excess_at(limiting, context.tenant, device, bytes) : Bytes{};
    const Bytes there =
        state_.ledger.available(context.tenant, device, state_.arbiter.terms_of(context, device));
    take(device, {For::kDebt, below, std::max(over, bytes.minus(there))});
  }
}

bool Reservations::pay(DeviceIndex device) {
  const Ledger& ledger = state_.ledger;
  bool any = take(device, {For::kDebt, {}, ledger.shortage(device)});
  for (const TenantId debtor : std::set(ledger.in_debt(device)))
    any |= take(device, {For::kDebt, debtor, ledger.debt(debtor, device)});
  for (const TenantId tenant : std::set(ledger.overcommitted(device))) {
    const Bytes over = ledger.used_and_kept(tenant, device).minus(ledger.quota(tenant, device).limit);
    any |= take(device, {For::kDebt, tenant, over});
  }
  return take(device,
              {For::kClaims, {}, state_.arbiter.claimed(device).minus(ledger.free_or_creatable(device))}) ||
         any;
}

bool Reservations::give_way_to_line(DeviceIndex device, TimePoint now) {
  if (state_.arbiter.waiting(device) == 0) return false;
  const Bytes idle = this->idle(device, now);
  const Ledger& ledger = state_.ledger;
  const auto serve = [&](RequestId id) {
    const Request& request = *state_.arbiter.find(id);
    const Bytes needed = needed_of(ledger, request, device);
    const TenantId limiting = ledger.limiting(request.tenant, device, needed);
    const GrantTerms terms = state_.arbiter.terms_of(request, device);
    const Bytes lack = limiting ? ledger.excess_at(limiting, request.tenant, device, needed)
                                : needed.minus(ledger.available_on_demand(request.tenant, device, terms));
    return lack <= idle && take(device, {For::kLine, limiting, lack, &request, now});
  };
  if (idle.is_zero()) return false;
  bool any = false;
  if (const auto next = state_.arbiter.next(device)) any |= serve(*next);
  for (const auto& [tenant, id] : state_.arbiter.held_back(device)) any |= serve(id);
  std::size_t served = 0;
  for (const auto& [id, leaf] : state_.arbiter.full(device)) {
    if (served++ == kMostVisited) break;
    any |= serve(id);
  }
  return any;
}

// What the line may have of all jobs together. Notes when it may have more.
Bytes Reservations::idle(DeviceIndex device, TimePoint now) {
  Bytes sum;
  for (const CommandJobId id : state_.reserving[device]) {
    const CommandJob& job = state_.jobs.at(id);
    const Bytes reserved = state_.ledger.reserved(job.leaf, device);
    if (reserved.is_zero()) continue;
    const TimePoint idle = job.devices[device].idle_since + state_.policy.reserve_idle;
    auto& due = devices_[device].due;
    if (idle <= now)
      sum += reserved;
    else
      due = std::min(due.value_or(idle), idle);
  }
  return sum;
}

// For the line, the whole amount or nothing: less would help nobody.
bool Reservations::take(DeviceIndex device, const Need& need) {
  std::vector<std::pair<CommandJob*, Bytes>> from;
  std::map<TenantId, Bytes> taken;  // from each tenant
  Bytes open = need.bytes;
  if (open.is_zero()) return false;
  for (const CommandJobId id : state_.reserving[device]) {
    CommandJob& job = state_.jobs.at(id);
    if (!state_.tenants.is_below(job.leaf, need.below)) continue;
    const Bytes bytes = std::min(takable(job, device, need, taken), open);
    if (bytes.is_zero()) continue;
    for (TenantId node = job.leaf; node; node = state_.ledger.parent(node)) taken[node] += bytes;
    from.emplace_back(&job, bytes);
    open -= bytes;
    if (open.is_zero()) break;
  }
  if (need.whom == For::kLine && !open.is_zero()) return false;
  for (const auto& [job, bytes] : from) jobs_.give_up(*job, device, bytes);
  return !from.empty();
}

Bytes Reservations::takable(const CommandJob& job, DeviceIndex device, const Need& need,
                            const std::map<TenantId, Bytes>& taken) const {
  const Ledger& ledger = state_.ledger;
  Bytes bytes = ledger.reserved(job.leaf, device);
  if (need.whom == For::kDebt || bytes.is_zero()) return bytes;
  const Request* request = need.request;
  if (need.whom == For::kLine) {
    if (job.leaf == request->tenant || job.devices[device].idle_since + state_.policy.reserve_idle > need.now)
      return {};
    const bool may_borrow = request->may_borrow && ledger.unanswered(request->tenant, device).is_zero();
    if (!need.below && ledger.lends(device) && may_borrow) return bytes;
  }
  // Memory within promises stays with the tenants that have them: it would be kept for them, or claimed by
  // them. The request may be below such a tenant itself.
  for (TenantId node = job.leaf; node; node = ledger.parent(node)) {
    if (request != nullptr && state_.tenants.is_below(request->tenant, node)) break;
    const auto before = taken.find(node);
    bytes = std::min(bytes,
                     ledger.borrowed(node, device).minus(before == taken.end() ? Bytes{} : before->second));
  }
  return bytes;
}

std::optional<TimePoint> Reservations::next_deadline() const {
  std::optional<TimePoint> next;
  for (const Device& one : devices_) {
    if (one.due && (!next || *one.due < *next)) next = one.due;
  }
  return next;
}

}  // namespace gpumem::core
