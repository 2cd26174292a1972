#include "daemon/core/region_waits.h"

namespace gpumem::core {

void RegionWaits::follow(SessionId session, TenantId tenant, const std::string& tenant_name) {
  move(session, tenant);
  for (const RequestId id : of_session(session))
    if (find(id)->is_own) change(id, [&](RegionWait& wait) { wait.terms.owner = tenant_name; });
}

std::vector<TenantId> RegionWaits::tenants_for(const std::string& owner, const std::string& name) const {
  std::vector<TenantId> tenants;
  for (auto next = by_key().lower_bound({owner, name, {}}); next != by_key().end(); ++next) {
    const auto& [of, named, tenant] = next->first;
    if (of != owner || named != name) break;
    tenants.push_back(tenant);
  }
  return tenants;
}

std::vector<std::pair<std::string, std::string>> RegionWaits::names() const {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& [key, ids] : by_key()) {
    std::pair name(std::get<0>(key), std::get<1>(key));
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return names;
}

std::optional<RequestId> RegionWaits::take_due() {
  while (!due_.empty()) {
    const RequestId first = due_.extract(due_.begin()).value();
    if (find(first) != nullptr) return first;
  }
  return std::nullopt;
}

std::vector<RequestId> RegionWaits::take_pressed() {
  std::vector<RequestId> waiting;
  for (const RequestId id : std::exchange(pressed_, {}))
    if (find(id) != nullptr) waiting.push_back(id);
  return waiting;
}

}  // namespace gpumem::core
