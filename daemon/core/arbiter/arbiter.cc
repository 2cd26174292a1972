#include "daemon/core/arbiter/arbiter.h"

#include <algorithm>

#include "base/check.h"

// The waiting requests, and all changes of them but grants, which are in arbiter_admit.cc.

// Granting.

namespace gpumem::core {

Arbiter::Arbiter(Ledger& ledger, std::vector<Bytes> granularities, Duration aging)
    : ledger_(ledger),
      granularities_(std::move(granularities)),
      aging_(aging),
      waiting_(ledger.device_count()),
      claims_(waiting_, ledger),
      changed_(ledger.device_count(), true),
      claims_seen_(ledger.device_count()),
      promises_seen_(ledger.device_count()),
      undone_(ledger.device_count()) {
  GPUMEM_CHECK(granularities_.size() == ledger.device_count(), "a granularity for every device");
  for (DeviceIndex device = 0; device < ledger.device_count(); ++device)
    orders_.emplace_back(ledger_, device, waiting_, claims_, last_overdue_);
}

void Arbiter::add(Request request) {
  const Request& added = waiting_.add(std::move(request));
  newest_ = added.id;
  at_newest_.clear();
  for (const Request::Part& part : added.parts) at_newest_.push_back({0, revision(part.device)});
  for (const Request::Part& part : added.parts) {
    orders_[part.device].add(added);
    refresh(added.tenant, part.device);
  }
  for (std::size_t i = 0; i < at_newest_.size(); ++i) at_newest_[i].changes = changes(added.parts[i].device);
}

// Removes the request. The caller refreshes the order.
Request Arbiter::take_out(RequestId id) {
  Request request = waiting_.take(id);
  for (const Request::Part& part : request.parts) orders_[part.device].remove(request);
  return request;
}

std::optional<Request> Arbiter::remove(RequestId id) {
  if (waiting_.find(id) == nullptr) return std::nullopt;
  Request request = take_out(id);
  const bool is_alone =
      id == newest_ && std::ranges::equal(
                           request.parts, at_newest_, {},
                           [&](const Request::Part& part) { return changes(part.device); }, &Undone::changes);
  refresh(request);
  for (std::size_t i = 0; is_alone && i < request.parts.size(); ++i) {
    const DeviceIndex device = request.parts[i].device;
    undone_[device] = {changes(device), at_newest_[i].revision};
  }
  return request;
}

std::vector<Request> Arbiter::remove_all_of(SessionId session) {
  std::vector<Request> removed;
  for (const RequestId id : requests_of(session)) removed.push_back(*remove(id));
  return removed;
}

std::vector<Request> Arbiter::take_out(SessionId session) {
  for (const RequestId id : requests_of(session)) claims_.keep_number(id);
  return remove_all_of(session);
}

void Arbiter::put_back(std::vector<Request> requests) {
  for (Request& one : requests) add(std::move(one));
  claims_.settle();
}

std::vector<Request> Arbiter::remove_expired(TimePoint now, std::size_t most) {
  std::vector<Request> removed;
  for (const Request* one;
       removed.size() < most && (one = waiting_.most_urgent()) != nullptr && one->deadline <= now;)
    removed.push_back(*remove(one->id));
  std::ranges::sort(removed, {}, &Request::id);
  return removed;
}

void Arbiter::age(TimePoint now) {
  for (const Request* one; (one = next_to_age()) != nullptr && one->asked + aging_ <= now;) {
    last_overdue_ = one->id;
    refresh(*one);
  }
}

void Arbiter::set_aging(Duration aging, TimePoint now) {
  aging_ = aging;
  last_overdue_ = {};
  rebuild();
  age(now);
}

void Arbiter::set_tenant(SessionId session, TenantId tenant, CommandJobId job, TenantId besides) {
  waiting_.set_tenant(session, tenant, job, besides);
}

void Arbiter::rebuild() {
  ledger_.take_changed(changes_);
  claims_.clear();
  for (DeviceOrder& order : orders_) order.clear();
  waiting_.for_each([this](const Request& request) {
    for (const Request::Part& part : request.parts) orders_[part.device].add(request);
  });
  for (DeviceOrder& order : orders_) order.refresh_all();
  claims_.settle();
  changed_.assign(changed_.size(), true);
}

void Arbiter::take_changes() {
  std::vector<DeviceIndex> promised;
  for (DeviceIndex device = 0; device < orders_.size(); ++device) {
    const std::uint64_t revision = ledger_.promises_revision(device);
    if (std::exchange(promises_seen_[device], revision) != revision) promised.push_back(device);
  }
  for (DeviceIndex device = 0; device < orders_.size() && !promised.empty(); ++device) {
    const auto concerns = [&](DeviceIndex one) { return one == device || are_linked(one, device); };
    if (std::ranges::none_of(promised, concerns)) continue;
    orders_[device].refresh_all();
    changed_[device] = true;
  }
  ledger_.take_changed(changes_);
  add_linked(changes_);
  for (const auto& [tenant, device] : changes_) refresh(tenant, device);
}

// A request for both devices may wait.
bool Arbiter::are_linked(DeviceIndex one, DeviceIndex other) const {
  return one != other && orders_[one].has_joint() && orders_[other].has_joint();
}

// A request for several devices has room for it on all of them, or on none.
void Arbiter::add_linked(Ledger::Changes& changes) const {
  const std::size_t count = changes.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto [tenant, changed] = changes[i];
    for (DeviceIndex device = 0; device < orders_.size(); ++device)
      if (are_linked(changed, device)) changes.emplace_back(tenant, device);
  }
  if (changes.size() == count) return;
  std::ranges::sort(changes);
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
}

void Arbiter::refresh(TenantId tenant, DeviceIndex device) {
  changed_[device] = true;
  orders_[device].refresh(tenant);
}

void Arbiter::refresh(const Request& request) {
  for (const Request::Part& part : request.parts) refresh(request.tenant, part.device);
}

std::optional<TimePoint> Arbiter::next_deadline() const {
  std::optional<TimePoint> next;
  if (const Request* one = waiting_.most_urgent()) next = one->deadline;
  if (const Request* one = next_to_age(); one != nullptr && (!next || one->asked + aging_ < *next))
    next = one->asked + aging_;
  return next;
}

std::optional<RequestId> Arbiter::next(DeviceIndex device) const {
  const Candidate& first = orders_[device].first();
  return first ? std::optional(first.request) : std::nullopt;
}

std::vector<Granted> Arbiter::admit() {
  std::vector<Granted> granted;
  take_changes();
  for (bool progress = true; progress;) {
    const bool any = !granted.empty() || std::ranges::find(changed_, true) != changed_.end();
    progress = false;
    for (DeviceIndex device = 0; device < changed_.size(); ++device) {
      if (!is_to_be_looked_at(device, any)) continue;
      while (grant_one(device, granted)) progress = true;
      changed_[device] = false;
      claims_seen_[device] = claims_.revision(device);
    }
  }
  return granted;
}

std::optional<Granted> Arbiter::grant_out_of_turn(RequestId id) {
  if (!fits(waiting_.at(id))) return std::nullopt;
  return grant(id);
}

// A change on one device can end a claim on another. It can also let a request for several devices fit, which
// is first on another device.
bool Arbiter::is_to_be_looked_at(DeviceIndex device, bool any_changed) const {
  if (changed_[device] || claims_seen_[device] != claims_.revision(device)) return true;
  return any_changed && (orders_[device].first().is_joint || claims_.any_joint(device));
}

bool Arbiter::grant_one(DeviceIndex device, std::vector<Granted>& granted) {
  if (waiting_.size(device) == 0) return false;
  // A claim for which there is memory is passed over only if a limit was lowered below the use.
  for (auto claim = claims_.first_at_most_free(device, ledger_, {}); claim;
       claim = claims_.first_at_most_free(device, ledger_, *claim)) {
    if (!fits(waiting_.at(*claim))) continue;
    granted.push_back(grant(*claim));
    return true;
  }
  const Candidate& first = orders_[device].first();
  if (!first || !fits(first, device) || overtakes(first, device)) return false;
  granted.push_back(grant(first.request));
  return true;
}

bool Arbiter::fits(const Candidate& candidate, DeviceIndex device) const {
  // If the device does not lend guarantees, the terms depend on the candidate alone.
  if (candidate.is_joint || ledger_.lends(device)) return fits(waiting_.at(candidate.request));
  return ledger_.verdict(candidate.tenant, device, candidate.needed) == Ledger::Verdict::kFits;
}

bool Arbiter::fits(const Request& request) const {
  return std::ranges::all_of(request.parts, [&](const Request::Part& part) {
    const Bytes needed = needed_of(ledger_, request, part.device);
    return ledger_.verdict(request.tenant, part.device, needed, terms_of(request, part.device)) ==
           Ledger::Verdict::kFits;
  });
}

// A request for several devices that is first here must not overtake an overdue request on another device.
bool Arbiter::overtakes(const Candidate& candidate, DeviceIndex device) const {
  if (!candidate.is_joint) return false;
  const Request& request = waiting_.at(candidate.request);
  return std::ranges::any_of(request.parts, [&](const Request::Part& part) {
    const Candidate& other = orders_[part.device].first();
    return part.device != device && other && other.overdue && other.request < request.id;
  });
}

Granted Arbiter::grant(RequestId id) {
  const Request& request = waiting_.at(id);
  Granted granted;
  for (const Request::Part& part : request.parts) granted.bytes.push_back(amount(request, part));
  granted.request = take_out(id);
  for (std::size_t i = 0; i < granted.bytes.size(); ++i) {
    const DeviceIndex device = granted.request.parts[i].device;
    if (granted.request.is_reservation())
      ledger_.add_reservation(granted.request.tenant, device, granted.bytes[i]);
    else if (granted.request.is_context())
      ledger_.give_to_driver(granted.request.tenant, device, granted.bytes[i],
                             terms_of(granted.request, device));
    else
      ledger_.reserve(granted.request.tenant, device, granted.bytes[i], terms_of(granted.request, device));
  }
  take_changes();
  return granted;
}

// The least amount that the request accepts; more, if its job has reserved it, or no other request waits for
// the device.
Bytes Arbiter::amount(const Request& request, const Request::Part& part) const {
  if (part.bytes == part.min_bytes) return part.min_bytes;
  Bytes most = ledger_.reserved(request.tenant, part.device);
  if (waiting_.size(part.device) == 1)
    most += ledger_.available(request.tenant, part.device, terms_of(request, part.device));
  return std::max(part.min_bytes, std::min(part.bytes, most).rounded_down(granularities_[part.device]));
}

GrantTerms Arbiter::terms_of(const Request& request, DeviceIndex device) const {
  return {spoken_for(request.id, device), request.may_borrow};
}

// On a device that lends idle guarantees, only this amount keeps memory free for the waiting claims.
Bytes Arbiter::spoken_for(RequestId id, DeviceIndex device) const {
  return ledger_.lends(device) ? claims_.sum_without(id, device) : Bytes{};
}

}  // namespace gpumem::core
