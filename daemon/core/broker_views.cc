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
  const Session& session = sessions_.at(id);
  const TenantId tenant = session.tenant;
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
                          .charged = ledger_.used(tenant, i).count,
                          .available = ledger_.available(tenant, i, arbiter_.spoken_for({}, i)).count,
                          .pressure = 0,
                          .pressure_deadline = 0};
    if (const auto asked = session.asked.find(i);
        asked != session.asked.end() && !asked->second.bytes.is_zero()) {
      figures.devices[i].pressure = asked->second.bytes.count;
      figures.devices[i].pressure_deadline =
          static_cast<std::uint64_t>(asked->second.deadline.time_since_epoch() / std::chrono::nanoseconds(1));
    }
  }
  return figures;
}

std::vector<DeviceView> Broker::devices() const {
  std::vector<DeviceView> views;
  for (DeviceIndex i = 0; i < policy_.devices.size(); ++i) {
    Bytes asked_back;
    for (const SessionId id : pressure_[i].asked) asked_back += sessions_.at(id).asked.at(i).bytes;
    views.push_back({policy_.devices[i], ledger_.free(i), ledger_.charges(i), stores_[i].warm(),
                     stores_[i].missing(), ledger_.promised(i), arbiter_.waiting(i), asked_back,
                     ledger_.outside(i)});
  }
  return views;
}

std::vector<TenantView> Broker::tenants() const {
  std::vector<TenantView> views;
  std::map<TenantId, std::size_t> sessions;  // with those below
  std::map<std::pair<TenantId, DeviceIndex>, std::size_t> waiting;
  for (const auto& [id, tenant] : tenants_) {
    for (TenantId node = id; node; node = ledger_.parent(node)) {
      sessions[node] += tenant.sessions.size();
      for (DeviceIndex i = 0; i < policy_.devices.size(); ++i) waiting[{node, i}] += arbiter_.waiting(i, id);
    }
  }
  for (const auto& [name, id] : tenant_by_name_) {
    for (DeviceIndex i = 0; i < policy_.devices.size(); ++i) {
      const TenantId parent = ledger_.parent(id);
      views.push_back({.name = name,
                       .parent = parent ? tenants_.at(parent).name : "",
                       .device = i,
                       .quota = ledger_.quota(id, i),
                       .charges = ledger_.charges(id, i),
                       .outside = ledger_.outside(id, i),
                       .burst = ledger_.burst(id, i),
                       .debt = ledger_.debt(id, i),
                       .sessions = sessions[id],
                       .waiting = waiting[{id, i}]});
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
