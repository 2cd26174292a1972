#pragma once
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/device_name.h"
#include "daemon/core/words/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// Names of tenants that begin so are of users without one.
inline constexpr std::string_view kUserTenantPrefix = "uid:";

inline std::string user_tenant(std::uint32_t uid) {
  return std::string(kUserTenantPrefix) + std::to_string(uid);
}

/// The number N of a tenant named `uid:N`; nothing for other names.
inline std::optional<std::uint32_t> user_of_tenant(const std::string& name) {
  if (!name.starts_with(kUserTenantPrefix)) return std::nullopt;
  std::uint32_t uid = 0;
  const auto read = std::from_chars(name.data() + kUserTenantPrefix.size(), name.data() + name.size(), uid);
  if (read.ec != std::errc() || name != user_tenant(uid)) return std::nullopt;  // one name for each
  return uid;
}

/// The consequence if a tenant does not give back in time the part of its burst that claims need, or its use
/// beyond its limit.
enum class Escalation {
  kWait,        ///< the reclaim request stays
  kDeny,        ///< the claims are refused
  kEndSession,  ///< one of the tenant's sessions is terminated: SIGTERM, `grace`, SIGKILL
};

/// How lent memory of a device is reclaimed.
struct ReclaimPolicy {
  /// Idle guarantees may be lent; else the unused part of every guarantee stays free.
  bool lend_guarantees = false;
  Duration deadline = std::chrono::seconds(2);  ///< of a reclaim request
  Escalation escalation = Escalation::kWait;
  Duration grace = std::chrono::seconds(5);  ///< between SIGTERM and SIGKILL
};

/// The treatment of processes that take memory past the broker.
struct PastBrokerPolicy {
  bool end = false;                            ///< SIGTERM, the device's grace, SIGKILL; else only reported
  Bytes allowance{600ULL << 20};               ///< less than this (a context) is ignored
  Duration confirm = std::chrono::seconds(5);  ///< acted on once every look has seen such memory for so long
};

/// The reason why there are no fabric handles if the configuration does not ask for them.
inline constexpr const char* kFabricOff = "set fabric_handles in [broker] and restart the broker";

/// How much of a device's pool is kept created.
enum class PoolMode {
  kAll,        ///< all of it, so that processes outside the broker find only the rest of the device
  kElastic,    ///< the memory that is needed (Elastic), so that others can use the rest
  kByDisplay,  ///< kElastic while the device drives a display, else kAll
};

/// One device as the broker lends it.
struct DevicePolicy {
  std::string uuid;
  std::string name;
  Bytes total;
  Bytes pool;  ///< the part of `total` that the broker owns; a multiple of the granularity
  Bytes granularity;
  ReclaimPolicy reclaim{};
  /// Charged to each session that uses the device, until its context has been measured.
  Bytes context_overhead{};
  /// Contexts of a job's processes count within the limit of the job, too; else within its tenant's alone.
  bool contexts_in_limit = false;
  PoolMode pool_mode = PoolMode::kAll;
  bool has_display = false;  ///< a display is connected to the device
  bool is_elastic() const {
    return pool_mode == PoolMode::kElastic || (pool_mode == PoolMode::kByDisplay && has_display);
  }
  /// The reason why its extents have no fabric handles; empty: they have.
  std::string no_fabric = kFabricOff;
  /// The host store: memory of the machine, lent as that of a device. Its pool is elastic.
  bool is_host() const { return uuid == kHostStore; }
};

/// The bytes that the pool leaves free when it grows: half of the memory that is not reserved, at most a
/// twentieth of the device. So programs can make their contexts even if others use most of the device. The
/// `contexts` that clients have already count as room that was kept for them.
Bytes kept_for_contexts(const DevicePolicy& device, Bytes contexts);
/// The size that a context is expected to have while nothing tells it: a thirty-second of the device's
/// `total`, at most `allowance` (PastBrokerPolicy).
Bytes usual_context(Bytes total, Bytes allowance);
/// The bytes of the device that stay free besides when an elastic pool grows, for whoever else uses the
/// device: 1 GiB, or an eighth of a small device. What guarantees need does not leave them.
Bytes kept_for_others(const DevicePolicy& device);

/// A tenant by name: the processes of a user or of a group, or the parent of other tenants.
struct TenantRule {
  std::string name;
  std::string parent{};  ///< another rule's name; empty: none
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
  std::vector<Quota> quotas;    ///< one a device
  bool fabric_handles = false;  ///< the tenant may give memory out by fabric handles
};

/// The pods of Kubernetes that memory is lent to.
struct PodsPolicy {
  std::map<std::string, std::string> prepared{};  ///< the name of its tenant, by the pod's UID
  /// A pod that nothing was prepared for is a tenant with Policy::others; else it is refused.
  bool others = false;
  /// This machine runs pods. A process whose pod the kernel does not show may be in one, and is refused.
  bool expected = false;
};

/// All of the configuration that decisions depend on.
struct Policy {
  std::vector<DevicePolicy> devices;
  std::vector<TenantRule> tenants;
  /// Quotas of each user without a rule, who is a tenant of its own; none: such users are refused.
  std::optional<std::vector<Quota>> others;
  std::string others_parent{};  ///< the parent of these tenants; empty: none
  PodsPolicy pods{};
  std::size_t max_sessions = 4096;
  std::size_t max_sessions_per_tenant = 4096;
  std::size_t max_slices_per_session = 64;
  std::size_t max_requests_per_session = 64;  ///< waiting at the same time
  /// Waiting at the same time, of all sessions. A user with no waiting request may always have one.
  std::size_t max_requests = 16'384;
  /// Extents of all devices, by the broker's limit of open files. Takes effect when the broker starts.
  std::size_t max_extents = std::numeric_limits<std::size_t>::max();
  /// An eighth of them for each user and each pod, at least one.
  std::size_t max_requests_per_user() const { return std::max<std::size_t>(max_requests / 8, 1); }
  /// Longest time a request may wait; a longer time is cut down to it.
  Duration max_wait = std::chrono::hours(1);
  /// Even a request that may not wait is given this long while memory is on its way back: nobody holds that
  /// memory, and it arrives within milliseconds.
  Duration return_grace = std::chrono::milliseconds(250);
  /// The line may have what a job has reserved and not used for so long.
  Duration reserve_idle = std::chrono::seconds(120);
  PastBrokerPolicy past_broker{};
  /// A request that has waited this long is overtaken only by claims.
  Duration aging = std::chrono::minutes(10);
};

inline constexpr std::size_t kMaxTenantDepth = 8;

/// Checks the policy. The promises to and below each tenant are within its limit, and all promises of a
/// device within its pool. Devices and tenants are named once. Each tenant has a quota for every device, with
/// weight and priority in their range. Pools are multiples of the granularity. Parents are known, have no
/// users of their own, and form no circle; the tree is at most kMaxTenantDepth deep. The guarantee of a user
/// without a rule is checked when its tenant is made.
/// Errors  kInvalidArgument: names the tenant, the device and the figures, and says what to change.
Result<void> check(const Policy& policy);

/// The UUIDs of the devices, in the order of the policy.
std::vector<std::string> uuids_of(const Policy& policy);

/// The name of the device for people: `gpu0`, or `host`.
std::string name_of(const Policy& policy, DeviceIndex device);

/// The tenant that is charged for a peer, with its quotas.
struct TenantMatch {
  std::string name;
  std::string parent{};  ///< empty: none
  std::vector<Quota> quotas;
};

/// The tenant of `peer`. In a pod: the tenant that was prepared for the pod, else one of the others, if those
/// may be pods. Outside pods: the tenant of the user, else of the owner (Peer::owner), else of a group, else
/// one of the others. The groups are the owner's if there is one, the primary first.
/// Errors  kPermissionDenied: no rule covers the peer.
Result<TenantMatch> tenant_of(const Policy& policy, const Peer& peer);

/// Whether any memory is guaranteed to the tenant, or to one above it.
bool has_guarantee(const Policy& policy, const TenantMatch& tenant);

/// The tenant of a session that has the tenant `now`. If the claim of its pod is gone, or if no rule covers
/// the peer, the session keeps its tenant and may not grow. This holds also where pods need no claim.
TenantMatch tenant_of_session(const Policy& policy, const Peer& peer, const std::string& now);

/// The prefix of names of pods' tenants. `NAMESPACE/NAME` follows if something was prepared for the pod.
inline constexpr const char* kPodTenantPrefix = "pod ";

}  // namespace gpumem::core
