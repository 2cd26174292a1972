#include "daemon/metrics/collector.h"

#include <algorithm>

#include "daemon/core/words/policy.h"

namespace gpumem::metrics {
namespace {

using Kind = core::Event::Kind;

bool is_user(std::string_view tenant) { return tenant.starts_with(core::kUserTenantPrefix); }

Bytes charged_to(const core::Event& event, const core::Broker& broker) {
  return broker.knows(event.session) ? Bytes{broker.figures(event.session).devices[*event.device].charged}
                                     : Bytes{};
}

}  // namespace

bool Collector::tell(const std::shared_ptr<const core::LoggedEvent>& event, const core::Broker& broker) {
  const core::Event& one = event->event;
  ++events_[static_cast<std::size_t>(one.kind)];
  if (!one.tenant.empty() && one.device) count(one, broker);
  if (one.kind == Kind::kDied) end_reclaims_of(one, broker);
  return true;
}

void Collector::count(const core::Event& event, const core::Broker& broker) {
  Record& record = record_of(event.tenant, broker);
  record.latest = event.at;
  Counters& counters = record.devices[*event.device];
  switch (event.kind) {
    case Kind::kGranted:
      counters.granted += event.bytes;
      counters.grant_wait.observe(event.waited);
      counters.peak = std::max(counters.peak, charged_to(event, broker));
      break;
    case Kind::kDenied: counters.denial_wait.observe(event.waited); break;
    case Kind::kPressure:
    case Kind::kRelieved: note_reclaim(event, counters); break;
    case Kind::kReturned: counters.returned += event.bytes; break;
    case Kind::kFreed: counters.freed += event.bytes; break;
    case Kind::kQuarantined: counters.quarantined += event.bytes; break;
    default: break;
  }
}

void Collector::note_reclaim(const core::Event& event, Counters& counters) {
  const std::pair key{event.session, *event.device};
  if (event.kind == Kind::kPressure) {
    asked_.emplace(key, event.at);  // asked for more: since the first time
    return;
  }
  if (const auto asked = asked_.extract(key)) counters.reclaim.observe(event.at - asked.mapped());
}

// What a process was asked for comes back with its end.
void Collector::end_reclaims_of(const core::Event& death, const core::Broker& broker) {
  const auto first = asked_.lower_bound({death.session, 0});
  auto it = first;
  for (; it != asked_.end() && it->first.first == death.session; ++it)
    record_of(death.tenant, broker).devices[it->first.second].reclaim.observe(death.at - it->second);
  asked_.erase(first, it);
}

void Collector::begin_round(const core::Broker& broker) {
  full_ = false;
  std::erase_if(asked_, [&](const auto& entry) { return !broker.tenant_of(entry.first.first); });
}

Collector::Record& Collector::record_of(const std::string& tenant, const core::Broker& broker) {
  const auto known = records_.find(tenant);
  if (known != records_.end()) return known->second;
  if (is_user(tenant)) {
    if (users_ >= kMostUsers && !make_room(broker)) return records_[std::string(kOtherUsers)];
    ++users_;
  }
  return records_[tenant];
}

// Takes the place of the user without a session whose last event is the oldest; false: there is none.
bool Collector::make_room(const core::Broker& broker) {
  if (full_) return false;
  auto oldest = records_.end();
  for (auto it = records_.lower_bound(core::kUserTenantPrefix); it != records_.end() && is_user(it->first);
       ++it) {
    if (it->first == kOtherUsers || broker.has_tenant(it->first)) continue;
    if (oldest == records_.end() || it->second.latest < oldest->second.latest) oldest = it;
  }
  full_ = oldest == records_.end();
  if (full_) return false;
  records_.erase(oldest);
  --users_;
  return true;
}

std::string Collector::name_of(const std::string& tenant, const core::Broker& broker) {
  if (!is_user(tenant)) return tenant;
  const Record& record = record_of(tenant, broker);
  const auto own = records_.find(tenant);
  return own != records_.end() && &own->second == &record ? tenant : std::string(kOtherUsers);
}

std::map<std::string, Collector::ByDevice> Collector::page(const std::string& after, std::size_t most,
                                                           const core::Broker& broker) {
  std::map<std::string, ByDevice> page;
  for (auto it = records_.upper_bound(after); it != records_.end() && page.size() < most;) {
    if (!is_user(it->first) && !broker.has_tenant(it->first)) {
      it = records_.erase(it);
      continue;
    }
    page.emplace_hint(page.end(), it->first, it->second.devices);
    ++it;
  }
  return page;
}

}  // namespace gpumem::metrics
