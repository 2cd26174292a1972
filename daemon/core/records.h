#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "daemon/core/ledger.h"
#include "daemon/core/pool.h"
#include "daemon/core/reconcile.h"
#include "daemon/core/request.h"
#include "daemon/core/types.h"

namespace gpumem::core {

/// One extent on loan. Known from its grant until its memory is proved free.
struct Lease {
  LeaseId id;
  GrantId grant;
  Extent extent;
  SessionId session;
  SliceId slice;
  TenantId tenant;
  DeviceIndex device = 0;
  Charge state = Charge::kOffered;
  bool in_store = false;  ///< handed back to the store, to be proved free
};

struct Slice {
  SliceId id;
  DeviceIndex device = 0;
  Bytes limit;
  std::string label;
  Bytes charged;  ///< all its leases, those on their way back included
  Bytes held;     ///< of `charged`: offered or active
};

/// What a session is asked to give back of a device.
struct Asked {
  Bytes bytes;
  TimePoint deadline;
};

/// One client process. `ended` once its lane is gone; it stays as long as it is charged for something.
struct Session {
  SessionId id;
  TenantId tenant;
  Peer peer;
  std::string label;
  TimePoint since;
  bool ended = false;
  std::map<SliceId, Slice> slices;
  std::unordered_set<LeaseId> leases;
  std::map<DeviceIndex, Asked> asked;
  std::map<DeviceIndex, Outside> outside;  ///< what it is charged besides, where it has used a device
};

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

struct Tenant {
  TenantId id;
  std::string name;
  bool configured = false;       ///< by a rule; else it goes with its last session
  std::set<SessionId> sessions;  ///< and those that have ended, but are charged
};

}  // namespace gpumem::core
