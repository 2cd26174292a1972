#pragma once
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/ledger/ledger.h"
#include "daemon/core/sessions/accounting.h"
#include "daemon/core/words/denial.h"
#include "daemon/core/words/policy.h"
#include "daemon/core/words/types.h"

namespace gpumem::core {

// Copies of the broker's state, for listings.

/// What the extent of a lease is to its tenant.
struct LeaseStanding {
  ExtentId extent;
  DeviceIndex device = 0;
  std::string tenant;
  bool is_kept = false;  ///< a kept region lies in it
};

struct DeviceView {
  DevicePolicy policy;
  Bytes free;  ///< with what an elastic pool can create
  Charges charges;
  Bytes warm;
  Bytes missing;
  Bytes guaranteed;
  std::size_t waiting = 0;
  Bytes asked_back;                      ///< of borrowers, outstanding
  Bytes outside;                         ///< charged besides the pool: declared memory and contexts
  Bytes unexplained;                     ///< in use at the last look at the driver, with no known holder
  std::optional<TimePoint> claim_asked;  ///< when the oldest claim that waits was asked for
  Bytes contexts{};                      ///< of `missing`: contexts of sessions have taken it
  std::size_t contexts_refused = 0;      ///< for want of memory
  std::optional<TimePoint> context_refused_at{};  ///< the last one
  Bytes created{};                                ///< of the pool, lent or not
};

/// What a tenant has published.
struct RegionTotal {
  std::size_t count = 0;
  Bytes bytes;   ///< memory that several regions have in common counts in each
  Bytes kept{};  ///< the part of regions that outlive their processes
  std::size_t kept_count = 0;
};

struct TenantView {
  std::string name;
  std::string parent;
  DeviceIndex device = 0;
  Quota quota;
  Charges charges;  ///< with those of the tenants below it
  Bytes outside;    ///< charged besides: declared memory and contexts
  Bytes burst;      ///< beyond what is promised
  Bytes debt;       ///< beyond the limit
  std::size_t sessions = 0;
  std::size_t waiting = 0;
  RegionTotal regions;  ///< of this tenant alone
};

/// A job, and what it has of each device.
struct JobView {
  struct OnDevice {
    Bytes limit;
    Bytes charged;   ///< what it has reserved included
    Bytes reserved;  ///< of `charged`: not on loan
    Bytes peak;
    std::size_t waiting = 0;
    Bytes quarantined;  ///< of `charged`
    Bytes outside;      ///< of `charged`: pinned memory of the host; of a GPU contexts, if they count
  };
  CommandJobId id;
  std::string tenant;
  std::string label;
  SessionId owner;  ///< none: gone
  TimePoint since{};
  std::size_t sessions = 0;
  Duration waited{};                     ///< by requests that do not wait any more
  std::vector<TimePoint> waiting_since;  ///< by each that waits
  std::uint64_t denied = 0;
  std::vector<OnDevice> devices;

  Duration waited_until(TimePoint now) const {
    Duration all = waited;
    for (const TimePoint since : waiting_since) all += now - since;
    return all;
  }
};

/// How a tenant stands on a device.
struct Standing {
  DeviceIndex device = 0;
  Quota quota;
  Bytes charged;   ///< all of it
  Bytes declared;  ///< of `charged`
  Bytes overhead;  ///< of `charged`
  Bytes available;
  Bytes burst;
  Bytes debt;
  Bytes asked_back;
  std::optional<TimePoint> asked_back_until;
  RegionTotal regions{};    ///< that it has published
  Bytes past_broker{};      ///< of `charged`: taken past the broker, and not declared
  std::size_t waiting = 0;  ///< requests of all tenants
};

/// What `gpumem why` shows.
struct Explanation {
  std::string tenant;
  std::vector<Standing> devices;
  std::vector<Denial>
      waiting;               ///< one for each request and device, in the order they came; the first of them
  std::size_t requests = 0;  ///< that wait, in all
  bool is_newcomer = false;  ///< nobody is there: how a first session would stand
};

/// A device as its driver last said, against the ledger.
struct Reconciliation {
  struct Process {
    std::int64_t pid = 0;
    std::uint32_t uid = 0;
    std::string command;
    std::string tenant;  ///< the tenant that is charged; empty: none
    Bytes bytes;
  };
  std::optional<TimePoint> seen;
  Bytes used;  ///< as the driver says
  Bytes extents;
  Bytes contexts;  ///< of sessions' processes: their memory besides leases, up to the allowance of each
  Bytes overhead;  ///< charged to sessions for contexts: measured, else estimated
  Bytes declared;
  Bytes past_broker;
  Bytes unexplained;
  std::vector<Process> processes;  ///< that hold memory past the broker, largest first
  std::string problem;             ///< why nothing was seen; empty: none
  Accounting accounting{};

  /// The sums alone: there can be many processes.
  Reconciliation without_processes() const {
    return {seen, used, extents, contexts, overhead, declared, past_broker, unexplained, {}, problem};
  }
};

struct SliceView {
  SliceId id;
  DeviceIndex device = 0;
  std::string label;
  Bytes limit;
  Bytes charged;
  Bytes returning;  ///< of `charged`: the session has given it back
  Bytes waiting;
};

/// What a session has of a device besides its slices.
struct SharedView {
  DeviceIndex device = 0;
  Bytes charged;   ///< that it has inherited by imports, or that is on its way back
  Bytes imported;  ///< of others' memory, which is charged to them
  Bytes fabric;    ///< its own memory, its slices' included, that was given out by fabric handles
  Bytes declared;  ///< charged besides: memory past the broker, as it says
};

/// What a session is asked to give back of a device.
struct AskedView {
  DeviceIndex device = 0;
  Bytes bytes;
  TimePoint due{};
};

/// Requests that wait, each as a denial without holders and without the soonest instant: these would take a
/// look at every session.
struct WaitingPage {
  std::vector<Denial> requests;
  RequestId next;  ///< behind which the next page begins; none: there are no more
};

/// The charges of a session on one device, its slices included.
struct MemoryView {
  DeviceIndex device = 0;
  Charges charges;
  /// Its extents, by the power of two that their size has reached, the smallest first.
  std::vector<std::pair<Bytes, std::uint64_t>> extents;
};

struct SessionView {
  SessionId id;
  std::string tenant;
  CommandJobId job;  ///< that it is in; none: in none
  Peer peer;
  std::string label;
  TimePoint since;
  bool ended = false;
  bool detached = false;  ///< without a process: charged for kept regions
  std::vector<SliceView> slices;
  std::vector<SharedView> shared;    ///< where there is any
  std::vector<AskedView> asked;      ///< where there is any
  std::size_t mappings = 0;          ///< regions and handles that it has mapped
  std::size_t region_waits = 0;      ///< regions that it waits for
  std::vector<MemoryView> memory{};  ///< of the devices where it is charged or has a slice
};

}  // namespace gpumem::core
