#pragma once
#include <string>
#include <vector>

#include "daemon/core/ledger.h"
#include "daemon/core/policy.h"
#include "daemon/core/types.h"

namespace gpumem::core {

// What can be seen of the broker: copies, for listings.

struct DeviceView {
  DevicePolicy policy;
  Bytes free;
  Charges charges;
  Bytes warm;
  Bytes missing;
  Bytes guaranteed;
  std::size_t waiting = 0;
};

struct TenantView {
  std::string name;
  DeviceIndex device = 0;
  Quota quota;
  Charges charges;
  std::size_t sessions = 0;
  std::size_t waiting = 0;
};

struct SliceView {
  SliceId id;
  DeviceIndex device = 0;
  std::string label;
  Bytes limit;
  Bytes charged;
  Bytes waiting;
};

struct SessionView {
  SessionId id;
  std::string tenant;
  Peer peer;
  std::string label;
  TimePoint since;
  bool ended = false;
  std::vector<SliceView> slices;
};

}  // namespace gpumem::core
