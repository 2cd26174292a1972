#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "daemon/core/broker.h"

namespace gpumem::core::promises {

/// How a lane ended, as its process has it.
enum class LaneEnd {
  kReleased,  ///< the client says that it has unmapped everything
  kLost,
};

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

/// All contact of these tests with the broker: if its methods change, this is what is to be adapted.
class BrokerAdapter {
 public:
  explicit BrokerAdapter(Policy policy) : policy_(policy), broker_(std::move(policy)) {}

  Result<SessionId> open_session(const Peer& peer, TimePoint now);
  void end_lane(SessionId session, LaneEnd end, TimePoint now);
  void exited(SessionId session, TimePoint now);
  Result<SliceId> open_slice(SessionId session, DeviceIndex device, Bytes limit, TimePoint now);
  Result<void> close_slice(SessionId session, SliceId slice, TimePoint now);
  using Part = Broker::Part;
  void grow(RequestId id, SessionId session, std::span<const Part> parts, Duration wait, TimePoint now);
  void cancel(RequestId id, TimePoint now);
  Result<void> accept(SessionId session, GrantId grant, TimePoint now);
  Result<void> give_back(SessionId session, SliceId slice, std::span<const LeaseId> leases, TimePoint now);
  /// For everybody to map. `leases`  of the slice.
  Result<RegionId> publish(SessionId session, SliceId slice, std::span<const LeaseId> leases,
                           const std::string& name, bool keep, TimePoint now);
  Result<Imported> map_region(SessionId session, const std::string& owner, const std::string& name,
                              TimePoint now);
  Result<void> release_import(SessionId session, ImportId import, TimePoint now);
  Result<void> remove_region(const std::string& owner, const std::string& name, TimePoint now);
  Result<void> declare(SessionId session, DeviceIndex device, Bytes bytes, TimePoint now);
  void spent(SessionId session, DeviceIndex device, TimePoint now);
  void begin_look(DeviceIndex device, TimePoint now);
  void observe(const Observation& observation, TimePoint now);
  void job_done(const JobResult& result, TimePoint now);
  void tick(TimePoint now);
  Result<void> apply(const Policy& policy, TimePoint now);

  std::optional<TimePoint> next_deadline() const { return broker_.next_deadline(); }
  std::vector<Effect> take_effects();
  std::vector<Event> take_events() { return broker_.take_events(); }

  /// Who is charged for each lease, and which regions there are.
  Checkpoint checkpoint() const { return broker_.checkpoint(); }
  /// Sessions without a process, which have what is kept, and their tenants.
  std::map<SessionId, std::string> custodians() const;

  /// With the quotas of its tenants.
  const Policy& policy() const { return policy_; }
  const DevicePolicy& device(DeviceIndex device) const { return policy_.devices[device]; }
  std::size_t device_count() const { return policy_.devices.size(); }
  bool knows(SessionId session) const { return broker_.knows(session); }
  std::size_t session_count() const { return broker_.sessions().size(); }
  std::string tenant_of(SessionId session) const { return broker_.tenant_name(session); }
  /// By device; nothing of an unknown session.
  std::vector<AskedFor> asked_of(SessionId session) const;
  /// By name and device. Every tenant, those above others too.
  std::map<std::pair<std::string, DeviceIndex>, Account> accounts() const;
  std::map<std::string, std::string> parents() const;
  DeviceView view(DeviceIndex device) const { return broker_.devices()[device]; }
  std::vector<DeviceView> views() const { return broker_.devices(); }

 private:
  const std::string& uuid(DeviceIndex device) const { return policy_.devices[device].uuid; }

  Policy policy_;
  Broker broker_;
};

}  // namespace gpumem::core::promises
