#include "tests/promises/broker_adapter.h"

namespace gpumem::core::promises {

Result<SessionId> BrokerAdapter::open_session(const Peer& peer, TimePoint now) {
  return broker_.open_session(peer, "", now);
}

void BrokerAdapter::end_lane(SessionId session, LaneEnd end, TimePoint now) {
  broker_.session_ended(session, end == LaneEnd::kReleased ? SessionEnd::kReleased : SessionEnd::kLost, now);
}

void BrokerAdapter::exited(SessionId session, TimePoint now) { broker_.exited(session, now); }

Result<SliceId> BrokerAdapter::open_slice(SessionId session, DeviceIndex device, Bytes limit, TimePoint) {
  auto slice = broker_.open_slice(session, uuid(device), limit, "");
  if (!slice) return slice.error();
  return slice->id;
}

Result<void> BrokerAdapter::close_slice(SessionId session, SliceId slice, TimePoint now) {
  return broker_.close_slice(session, slice, now);
}

void BrokerAdapter::grow(RequestId id, SessionId session, std::span<const Part> parts, Duration wait,
                         TimePoint now) {
  broker_.grow(id, session, parts, wait, now);
}

void BrokerAdapter::cancel(RequestId id, TimePoint now) { broker_.cancel(id, now); }

Result<void> BrokerAdapter::accept(SessionId session, GrantId grant, TimePoint) {
  return broker_.accept(session, grant);
}

Result<void> BrokerAdapter::give_back(SessionId session, SliceId slice, std::span<const LeaseId> leases,
                                      TimePoint now) {
  return broker_.give_back(session, slice, leases, now);
}

Result<RegionId> BrokerAdapter::publish(SessionId session, SliceId slice, std::span<const LeaseId> leases,
                                        const std::string& name, bool keep, TimePoint now) {
  RegionTerms terms;
  terms.name = name;
  terms.sharing = Sharing::kPublic;
  terms.keep = keep;
  return broker_.publish(session, slice, leases, std::move(terms), now);
}

Result<Imported> BrokerAdapter::map_region(SessionId session, const std::string& owner,
                                           const std::string& name, TimePoint now) {
  auto mapped = broker_.map_region(session, owner, name, Regions::kNewest, now);
  if (!mapped) return mapped.error();
  return std::move(mapped->imported);
}

Result<void> BrokerAdapter::release_import(SessionId session, ImportId import, TimePoint now) {
  return broker_.release_import(session, import, now);
}

Result<void> BrokerAdapter::remove_region(const std::string& owner, const std::string& name, TimePoint now) {
  return broker_.remove_region_of(owner, name, Regions::kNewest, now);
}

std::map<SessionId, std::string> BrokerAdapter::custodians() const {
  std::map<SessionId, std::string> custodians;
  for (const SessionView& view : broker_.sessions())
    if (view.custodian) custodians.emplace(view.id, view.tenant);
  return custodians;
}

Result<void> BrokerAdapter::declare(SessionId session, DeviceIndex device, Bytes bytes, TimePoint now) {
  return broker_.charge(session, uuid(device), bytes, now);
}

void BrokerAdapter::spent(SessionId session, DeviceIndex device, TimePoint now) {
  broker_.spent(session, device, now);
}

void BrokerAdapter::begin_look(DeviceIndex device, TimePoint) { broker_.begin_observation(device); }

void BrokerAdapter::observe(const Observation& observation, TimePoint now) {
  broker_.observe(observation, now);
}

void BrokerAdapter::job_done(const JobResult& result, TimePoint now) { broker_.job_done(result, now); }

void BrokerAdapter::tick(TimePoint now) { broker_.tick(now); }

Result<void> BrokerAdapter::apply(const Policy& policy, TimePoint now) {
  auto applied = broker_.apply(policy, now);
  if (applied) policy_ = policy;
  return applied;
}

std::vector<Effect> BrokerAdapter::take_effects() {
  static_cast<void>(broker_.take_touched());
  return broker_.take_effects();
}

std::vector<AskedFor> BrokerAdapter::asked_of(SessionId session) const {
  std::vector<AskedFor> asked(policy_.devices.size());
  if (!broker_.knows(session)) return asked;
  const BrokerFigures figures = broker_.figures(session);
  for (DeviceIndex device = 0; device < asked.size(); ++device) {
    const DeviceFigures& one = figures.devices[device];
    const auto deadline = TimePoint(std::chrono::nanoseconds(one.pressure_deadline));
    asked[device] = {Bytes{one.pressure}, deadline};
  }
  return asked;
}

std::map<std::pair<std::string, DeviceIndex>, Account> BrokerAdapter::accounts() const {
  std::map<std::pair<std::string, DeviceIndex>, Account> accounts;
  for (const TenantView& view : broker_.tenants())
    accounts[{view.name, view.device}] = {view.quota, view.charges.total(), view.outside};
  return accounts;
}

std::map<std::string, std::string> BrokerAdapter::parents() const {
  std::map<std::string, std::string> parents;
  for (const TenantView& view : broker_.tenants()) parents[view.name] = view.parent;
  return parents;
}

}  // namespace gpumem::core::promises
