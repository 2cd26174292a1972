#include <algorithm>

#include "base/check.h"
#include "daemon/core/broker.h"

namespace gpumem::core {

std::vector<Effect> Broker::take_effects() { return std::exchange(effects_, {}); }

std::vector<SessionId> Broker::take_touched() { return std::exchange(touched_, {}); }

void Broker::touch(SessionId session) {
  if (touched_.empty() || touched_.back() != session) touched_.push_back(session);
}

bool Broker::settled() const {
  return std::ranges::all_of(stores_, [](const Store& store) { return store.settled(); });
}

bool Broker::knows(SessionId session) const {
  const auto found = sessions_.find(session);
  return found != sessions_.end() && !found->second.ended;
}

std::string Broker::tenant_name(SessionId session) const {
  return tenants_.at(sessions_.at(session).tenant).name;
}

BrokerFigures Broker::figures(SessionId id) const {
  const TenantId tenant = sessions_.at(id).tenant;
  BrokerFigures figures{};
  figures.session = id.value;
  figures.generation = generation_;
  figures.device_count = policy_.devices.size();
  for (DeviceIndex i = 0; i < policy_.devices.size(); ++i) {
    const Quota& quota = ledger_.quota(tenant, i);
    figures.devices[i] = {.pool = ledger_.pool(i).count,
                          .free = ledger_.free(i).count,
                          .guarantee = quota.guarantee.count,
                          .limit = quota.limit.count,
                          .charged = ledger_.charges(tenant, i).total().count,
                          .available = ledger_.available(tenant, i).count,
                          .pressure = 0,
                          .reserved = 0};
  }
  return figures;
}

std::vector<DeviceView> Broker::devices() const {
  std::vector<DeviceView> views;
  for (DeviceIndex i = 0; i < policy_.devices.size(); ++i) {
    views.push_back({policy_.devices[i], ledger_.free(i), ledger_.charges(i), stores_[i].warm(),
                     stores_[i].missing(), ledger_.guaranteed(i), arbiter_.waiting(i)});
  }
  return views;
}

std::vector<TenantView> Broker::tenants() const {
  std::vector<TenantView> views;
  for (const auto& [name, id] : tenant_by_name_) {
    for (DeviceIndex i = 0; i < policy_.devices.size(); ++i) {
      views.push_back({name, i, ledger_.quota(id, i), ledger_.charges(id, i), tenants_.at(id).sessions,
                       arbiter_.waiting(i, id)});
    }
  }
  return views;
}

std::vector<SessionView> Broker::sessions() const {
  std::vector<SessionView> views;
  for (const auto& [id, session] : sessions_) {
    SessionView view{
        id, tenants_.at(session.tenant).name, session.peer, session.label, session.since, session.ended, {}};
    for (const auto& [slice_id, slice] : session.slices) {
      view.slices.push_back({slice_id, slice.device, slice.label, slice.limit, slice.charged,
                             arbiter_.waiting_bytes(slice_id)});
    }
    views.push_back(std::move(view));
  }
  std::ranges::sort(views, {}, [](const SessionView& view) { return view.id; });
  return views;
}

}  // namespace gpumem::core
