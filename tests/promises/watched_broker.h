#pragma once
#include <map>
#include <string>
#include <vector>

#include "daemon/core/broker/broker.h"

namespace gpumem::core::promises {

/// What a session is asked to give back of a device.
struct AskedFor {
  Bytes bytes;
  TimePoint deadline;
};

/// One tenant on one device, as listed.
struct Account {
  Quota quota;
  Bytes leases;   ///< in every state
  Bytes outside;  ///< declared memory and contexts
  Bytes used() const { return leases + outside; }
};

/// What all sessions of the job are lent together.
inline Bytes on_loan(const JobView& job, DeviceIndex device) {
  return job.devices[device].charged - job.devices[device].reserved;
}

/// A broker, and its figures by device, session and tenant.
class WatchedBroker : public Broker {
 public:
  using Broker::Broker;

  std::size_t device_count() const { return policy().devices.size(); }
  const DevicePolicy& device(DeviceIndex device) const { return policy().devices[device]; }
  /// By device; nothing of an unknown session.
  std::vector<AskedFor> asked_of(SessionId session) const {
    std::vector<AskedFor> asked(device_count());
    if (!knows(session)) return asked;
    const BrokerFigures told = figures(session);
    for (DeviceIndex device = 0; device < asked.size(); ++device) {
      const DeviceFigures& one = told.devices[device];
      asked[device] = {Bytes{one.pressure}, TimePoint(std::chrono::nanoseconds(one.pressure_deadline))};
    }
    return asked;
  }
  /// By name and device. Every tenant, those above others too.
  std::map<std::pair<std::string, DeviceIndex>, Account> accounts() const {
    std::map<std::pair<std::string, DeviceIndex>, Account> accounts;
    for (const TenantView& view : tenants())
      accounts[{view.name, view.device}] = {view.quota, view.charges.total(), view.outside};
    return accounts;
  }
  std::map<std::string, std::string> parents() const {
    std::map<std::string, std::string> parents;
    for (const TenantView& view : tenants()) parents[view.name] = view.parent;
    return parents;
  }
  /// By number.
  std::map<CommandJobId, JobView> jobs_by_number() const {
    std::map<CommandJobId, JobView> all;
    for (JobView& view : jobs()) all.emplace(view.id, std::move(view));
    return all;
  }
  /// Declared memory of the machine, which counts for the job of its session.
  std::map<std::pair<CommandJobId, DeviceIndex>, Bytes> pinned_by_jobs() const {
    std::map<std::pair<CommandJobId, DeviceIndex>, Bytes> pinned;
    for (DeviceIndex device = 0; device < device_count(); ++device) {
      if (!this->device(device).is_host()) continue;
      for (const SessionView& view : sessions())
        for (const SharedView& shared : view.shared)
          if (view.job && shared.device == device) pinned[{view.job, device}] += shared.declared;
    }
    return pinned;
  }
  /// Sessions without a process, which have what is kept, and their tenants.
  std::map<SessionId, std::string> detached_sessions() const {
    std::map<SessionId, std::string> detached;
    for (const SessionView& view : sessions())
      if (view.detached) detached.emplace(view.id, view.tenant);
    return detached;
  }
};

}  // namespace gpumem::core::promises
