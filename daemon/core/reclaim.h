#pragma once
#include <functional>
#include <map>

#include "daemon/core/arbiter.h"

namespace gpumem::core {

/// What a tenant's sessions should give back of a device, and what for.
struct Ask {
  Bytes claims;    ///< for requests within others' guarantees
  Bytes fairness;  ///< for the next request, which would still have less than this tenant
  Bytes debt;      ///< beyond the limit of the tenant, or of one above it
  /// One return serves all causes.
  Bytes bytes() const { return std::max(claims + fairness, debt); }
};

/// Who should give back what of one device.
struct ReclaimPlan {
  std::map<TenantId, Ask> asks;
  Bytes claims_lack;  ///< what the claims that wait need beyond what is free or coming
};

/// What cannot be read from the ledger.
struct ReclaimFacts {
  Bytes granularity;
  Bytes coming;  ///< charged, but known to be free soon
  /// What the sessions of a leaf could give back at most.
  std::function<Bytes(TenantId)> givable;
};

/// Decides who is asked to give back memory of `device`: docs/arbiter.md has the rules. Takes time by the
/// number of those asked; none if nobody waits or owes.
ReclaimPlan plan_reclaim(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device,
                         const ReclaimFacts& facts);

/// What the request lacks of the device to be granted, where `there` is what is free or coming.
Bytes lack_of(const Ledger& ledger, const Arbiter& arbiter, const Request& request, DeviceIndex device,
              Bytes there);

}  // namespace gpumem::core
