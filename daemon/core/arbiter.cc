#include "daemon/core/arbiter.h"

#include <algorithm>

#include "base/check.h"

// The waiting requests, and all changes of them but grants, which are in arbiter_admit.cc.

namespace gpumem::core {

Arbiter::Arbiter(Ledger& ledger, std::vector<Bytes> granularities, Duration aging)
    : ledger_(ledger),
      granularities_(std::move(granularities)),
      aging_(aging),
      waiting_(ledger.device_count()),
      claims_(waiting_, ledger.device_count()),
      changed_(ledger.device_count(), true),
      claims_seen_(ledger.device_count()),
      promises_seen_(ledger.device_count()) {
  GPUMEM_CHECK(granularities_.size() == ledger.device_count(), "a granularity for every device");
  for (DeviceIndex device = 0; device < ledger.device_count(); ++device)
    orders_.emplace_back(ledger_, device, claims_, last_overdue_);
}

void Arbiter::add(Request request) {
  const Request& added = waiting_.add(std::move(request));
  for (const Request::Part& part : added.parts) {
    orders_[part.device].add(added);
    refresh(added.tenant, part.device);
  }
}

// Removes the request. The caller refreshes the order.
Request Arbiter::take_out(RequestId id) {
  Request request = waiting_.take(id);
  for (const Request::Part& part : request.parts)
    orders_[part.device].remove(request.tenant, id, request.parts.size() > 1);
  return request;
}

std::optional<Request> Arbiter::remove(RequestId id) {
  if (waiting_.find(id) == nullptr) return std::nullopt;
  Request request = take_out(id);
  refresh(request);
  return request;
}

std::vector<Request> Arbiter::remove_all_of(SessionId session) {
  std::vector<Request> removed;
  for (const RequestId id : requests_of(session)) removed.push_back(*remove(id));
  return removed;
}

std::vector<Request> Arbiter::remove_expired(TimePoint now) {
  std::vector<Request> removed;
  for (const Request* one; (one = waiting_.most_urgent()) != nullptr && one->deadline <= now;)
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

void Arbiter::set_tenant(SessionId session, TenantId tenant) { waiting_.set_tenant(session, tenant); }

void Arbiter::rebuild() {
  ledger_.take_changed(changes_);
  claims_.clear();
  for (DeviceOrder& order : orders_) order.clear();
  waiting_.for_each([this](const Request& request) {
    for (const Request::Part& part : request.parts) orders_[part.device].add(request);
  });
  for (DeviceOrder& order : orders_) order.refresh_all();
  changed_.assign(changed_.size(), true);
}

void Arbiter::take_changes() {
  for (DeviceIndex device = 0; device < orders_.size(); ++device) {
    const std::uint64_t revision = ledger_.promises_revision(device);
    if (std::exchange(promises_seen_[device], revision) == revision) continue;
    orders_[device].refresh_all();
    changed_[device] = true;
  }
  ledger_.take_changed(changes_);
  for (const auto& [tenant, device] : changes_) refresh(tenant, device);
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

}  // namespace gpumem::core
