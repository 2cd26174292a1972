#pragma once
#include <bit>
#include <boost/container/flat_map.hpp>
#include <boost/container/flat_set.hpp>
#include <boost/container/small_vector.hpp>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/ledger/ledger.h"
#include "daemon/core/memory/pool.h"
#include "daemon/core/sessions/reconcile.h"
#include "daemon/core/words/checkpoint.h"
#include "daemon/core/words/request.h"
#include "daemon/core/words/types.h"
#include "daemon/core/words/usage.h"

namespace gpumem::core {

/// One extent on loan. Known from its grant until its memory is proved free.
struct Lease {
  LeaseId id;
  GrantId grant;
  Extent extent;
  SessionId session;
  SliceId slice;  ///< none: inherited
  DeviceIndex device = 0;
  Charge state = Charge::kOffered;
  bool in_store = false;  ///< handed back to the store, to be proved free
  bool unproved = false;  ///< the store has tried in vain
  bool fabric = false;    ///< given out by a fabric handle: who maps it cannot be known, asked or ended
  TenantId
      unanswered{};  ///< the tenant that it counts for as Ledger::unanswered; none: somebody answers for it
  /// Its place among the leases of its session, which it leaves when it is destroyed.
  boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> place{};
};

struct Slice {
  SliceId id;
  DeviceIndex device = 0;
  Bytes limit;
  Bytes charged;  ///< all its leases, those on their way back included
  Bytes held;     ///< of `charged`: offered or active
  std::string label;
  std::uint64_t denied = 0;  ///< its requests that count as denied
  bool is_private = false;   ///< its memory has no handles and is never published
};

/// What a session is asked to give back of a device.
struct ReclaimRequest {
  /// Debt that remains of a reclaim request after the session said that it has nothing to give, gave back
  /// memory that is not proved free, or broke its lane. It lasts as long as a need for which the session was
  /// asked: a claim or a debt that was there when the liability arose.
  struct Liability {
    TimePoint due;
    std::uint64_t last_claim = 0;  ///< Arbiter::last_claim() at that time
    bool for_debt = false;         ///< there was a debt that it answers for
    Bytes denied;                  ///< that the session says it does not have; zero: it has not said so
  };
  Bytes bytes;                  ///< outstanding; zero: nothing
  Bytes own;                    ///< of `bytes`: of its own memory, besides what others hold that it uses
  Bytes declared;               ///< of `own`: what it has declared
  TimePoint deadline;           ///< of those
  Bytes for_siblings;           ///< besides: for a request of its tenant; nothing follows
  TimePoint siblings_deadline;  ///< of that
  bool forced = false;          ///< for claims or a debt: the device's escalation follows
  std::optional<Liability> liability{};
  Bytes total() const { return bytes + for_siblings; }
  /// The session says that it has nothing to give. It is not asked any more, and may be ended for these
  /// bytes.
  Bytes denied() const { return total().is_zero() && liability ? liability->denied : Bytes{}; }
  /// When the time for total(), or for denied(), is up.
  TimePoint due() const {
    if (!denied().is_zero()) return liability->due;
    return bytes.is_zero() ? siblings_deadline : deadline;
  }
};

/// What a session has of one device's pool.
struct Holding {
  Charges charges;
  Bytes inherited;     ///< of the active: it imported them, and whoever lent them has let go
  Bytes unproved;      ///< of the quarantined: given back, but the driver does not prove it free
  Charges fabric;      ///< of the charges, and never of `unproved`: given out by fabric handles
  Bytes freed;         ///< total of its leases that became free
  Bytes freed_before;  ///< of `freed`: when the latest observation began
  /// How many leases there are, by the power of two that the size of the extent has reached.
  boost::container::small_flat_map<std::uint8_t, std::uint32_t, 2> extents;

  Bytes held() const { return charges.held(); }
  /// Counts the lease in its present state.
  void add(const Lease& lease) { change(lease, std::plus<>{}); }
  /// Undoes add().
  void remove(const Lease& lease) { change(lease, std::minus<>{}); }
  /// A lease came (1) or went (-1).
  void count_extent(const Lease& lease, int change) {
    const auto power = static_cast<std::uint8_t>(std::bit_width(lease.extent.size.count) - 1);
    std::uint32_t& count = extents[power];
    count += static_cast<std::uint32_t>(change);
    if (count == 0) extents.erase(power);
  }
  /// What the end of its process brings back.
  Bytes leaving() const { return charges.total() - charges[Charge::kReturning] - fabric.total(); }

 private:
  template <class Operation>
  void change(const Lease& lease, Operation operation) {
    Bytes& part = lease.fabric ? fabric[lease.state] : unproved;
    charges[lease.state] = operation(charges[lease.state], lease.extent.size);
    if (lease.fabric || lease.unproved) part = operation(part, lease.extent.size);
  }
};

/// One client process. `ended` once its lane is gone; it stays as long as it is charged for something.
///
/// With many sessions most of a decision's time goes to memory that is in no cache. So what a decision needs
/// of a session that has one slice lies in the record itself.
struct Session {
  template <class Key, class Value>
  using FewBy = boost::container::small_flat_map<Key, Value, 1>;
  using Leases =
      boost::intrusive::list<Lease,
                             boost::intrusive::member_hook<Lease, decltype(Lease::place), &Lease::place>,
                             boost::intrusive::constant_time_size<false>>;

  SessionId id;
  TenantId tenant;   ///< the tenant of its user
  TenantId leaf;     ///< that is charged for what it is lent: its tenant, or one below that (Tenants)
  CommandJobId job;  ///< the job of `leaf`; none: it is in no job
  std::string tenant_name;
  Peer peer;
  TimePoint since;
  bool ended = false;
  bool exited = false;       ///< its process is gone
  bool told_to_end = false;  ///< a person had it sent SIGTERM
  bool awaited = false;      ///< of the broker before; its client has not come back yet
  /// A session without a process, charged for kept regions of its tenant that no process has. The broker
  /// answers its reclaim requests itself.
  bool detached = false;
  FewBy<DeviceIndex, Holding> holdings;
  Leases leases;
  FewBy<SliceId, Slice> slices;
  boost::container::small_flat_set<RequestId, 1> assemblies;  ///< granted, being brought together
  boost::container::flat_map<DeviceIndex, ReclaimRequest> asked;
  /// Charges besides leases, on each device that it has used.
  boost::container::flat_map<DeviceIndex, OutsideCharge> outside;
  std::string label;

  Spending spent;
  Duration waited{};         ///< for memory, all its requests together
  std::uint64_t denied = 0;  ///< requests
  std::string why;           ///< the broker has ended its process; empty: it has not

  Bytes charged() const {
    Bytes sum;
    for (const auto& [device, one] : holdings) sum += one.charges.total();
    for (const auto& [device, one] : outside) sum += one.total();
    return sum;
  }
  const Holding& holding(DeviceIndex device) const {
    static const Holding nothing;
    const auto found = holdings.find(device);
    return found == holdings.end() ? nothing : found->second;
  }
  /// Nothing: it is closed.
  Slice* slice(SliceId id) {
    const auto found = slices.find(id);
    return found == slices.end() ? nullptr : &found->second;
  }
  /// What it has itself told to hold outside the pool.
  Bytes declared(DeviceIndex device) const {
    const auto found = outside.find(device);
    return found == outside.end() ? Bytes{} : found->second.declared;
  }
};

inline Checkpoint::Lease checkpoint_of(const Lease& lease) {
  return {lease.id,     lease.grant,       lease.session,  lease.slice,
          lease.device, lease.extent.size, lease.in_store, lease.fabric};
}
inline Checkpoint::Slice checkpoint_of(const Slice& slice, SessionId session) {
  return {slice.id, session, slice.device, slice.limit, slice.label, slice.is_private};
}
inline Checkpoint::Session checkpoint_of(const Session& session) {
  return {session.id,    session.peer,  session.label, session.tenant_name,
          session.since, session.ended, session.job};
}

/// A granted request whose extents are being brought together.
struct Assembly {
  Granted granted;
  std::vector<std::optional<std::vector<Extent>>> extents;  ///< of each part, once there
  bool complete() const {
    for (const auto& one : extents)
      if (!one) return false;
    return true;
  }
};

/// A tenant, or a leaf below one that has jobs.
struct Tenant {
  TenantId id;
  TenantId owner;  ///< of a leaf: whose it is; else itself
  std::string name;
  bool configured = false;  ///< by a rule, or a job's; else it goes with its last session
  boost::container::small_flat_set<SessionId, 1>
      sessions;                    ///< charged here, and those that have ended, but are charged
  std::size_t sessions_below = 0;  ///< with those of the tenants below it
  TenantId rest{};  ///< the leaf of its sessions in no job; none: it has had no jobs, and is a leaf
  std::set<TenantId> leaves{};  ///< `rest` and those of its jobs
};

/// A command with all its processes. It has a leaf below its tenant, whose limit is the limit of all of them
/// together.
struct CommandJob {
  struct OnDevice {
    Bytes peak;              ///< the most that it was lent, or had pinned of the host, at one time
    Bytes recorded_peak;     ///< the peak that the next broker knows
    TimePoint idle_since{};  ///< its reservation has not been used since
    Bytes
        restored{};  ///< the part of its reservation at the broker before that the pool has not got back yet
  };
  CommandJobId id;
  TenantId leaf;
  SessionId owner;            ///< none: it is gone, and with it the reservation
  std::uint64_t account = 0;  ///< of the user or pod that may join it (Peer::account)
  std::string label;
  TimePoint since{};
  std::vector<OnDevice> devices;
  Duration waited{};         ///< for memory, all its requests together
  std::uint64_t denied = 0;  ///< requests
  Spending spent;
  std::optional<std::uint32_t> uid{};  ///< the owner's Peer::user()
  std::string why;                     ///< the broker has ended its processes; empty: it has not
};

}  // namespace gpumem::core
