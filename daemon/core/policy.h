#pragma once
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// One device as the broker lends it.
struct DevicePolicy {
  std::string uuid;
  std::string name;
  Bytes total;
  Bytes pool;  ///< what the broker owns of `total`; a multiple of the granularity
  Bytes granularity;
};

/// A tenant by name: the processes of a user or of a group.
struct TenantRule {
  std::string name;
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
  std::vector<Quota> quotas;  ///< one a device
};

/// Everything that is configured and concerns decisions.
struct Policy {
  std::vector<DevicePolicy> devices;
  std::vector<TenantRule> tenants;
  /// Quotas of users without a rule, each of whom is a tenant; none: they are refused.
  std::optional<std::vector<Quota>> others;
  std::size_t max_sessions = 4096;
  std::size_t max_sessions_per_tenant = 4096;
  std::size_t max_slices_per_session = 64;
  std::size_t max_requests_per_session = 64;  ///< waiting at the same time
  /// Longest time a request may wait; longer wishes are cut down to it.
  Duration max_wait = std::chrono::hours(1);
  /// While memory is on its way back, even a request that may not wait is given this long: nobody holds
  /// that memory, and it is a matter of milliseconds.
  Duration return_grace = std::chrono::milliseconds(250);
};

/// Checks that the policy can hold: every guarantee within its limit, all guarantees of a device together
/// within its pool; devices and tenants named once, a quota for every device, whole pools.
/// Errors  kInvalidArgument: names the tenant, the device and the figures.
Result<void> check(const Policy& policy);

/// Who is charged for a peer, and with which quotas.
struct TenantMatch {
  std::string name;
  std::vector<Quota> quotas;
};

/// The tenant of `peer`: by user, else by one of its groups (the primary first), else as one of the others.
/// Errors  kPermissionDenied: no rule covers the peer.
Result<TenantMatch> tenant_of(const Policy& policy, const Peer& peer);

}  // namespace gpumem::core
