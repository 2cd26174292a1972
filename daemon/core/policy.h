#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// What happens to a tenant that does not give back in time what rightful requests need of its burst, or what
/// it uses beyond its limit.
enum class Escalation {
  kWait,        ///< it stays asked
  kDeny,        ///< the requests are refused
  kEndSession,  ///< one of its sessions is ended: SIGTERM, `grace`, SIGKILL
};

/// How a device gets memory back that is lent.
struct ReclaimPolicy {
  /// Idle guarantees may be lent; else what a guarantee has yet to give is always free.
  bool lend_guarantees = false;
  Duration deadline = std::chrono::seconds(2);  ///< for what is asked back
  Escalation escalation = Escalation::kWait;
  Duration grace = std::chrono::seconds(5);  ///< between SIGTERM and SIGKILL
};

/// What happens to processes that take memory past the broker.
struct PastBrokerPolicy {
  bool end = false;                            ///< SIGTERM, the device's grace, SIGKILL; else only reported
  Bytes allowance{600ULL << 20};               ///< less than this (a context) is nobody's matter
  Duration confirm = std::chrono::seconds(5);  ///< it must last so long, at every look, to be acted on
};

/// Why there are no fabric handles where nobody asks for them.
inline constexpr const char* kFabricOff = "set fabric_handles in [broker] and restart the broker";

/// One device as the broker lends it.
struct DevicePolicy {
  std::string uuid;
  std::string name;
  Bytes total;
  Bytes pool;  ///< what the broker owns of `total`; a multiple of the granularity
  Bytes granularity;
  ReclaimPolicy reclaim{};
  /// Charged to each session that uses the device, until its context has been measured.
  Bytes context_overhead{};
  /// Why its extents have no fabric handles; empty: they have.
  std::string no_fabric = kFabricOff;
};

/// A tenant by name: the processes of a user or of a group, or all tenants that name it as their parent.
struct TenantRule {
  std::string name;
  std::string parent{};  ///< another rule's name; empty: none
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
  std::vector<Quota> quotas;    ///< one a device
  bool fabric_handles = false;  ///< may give memory out by them
};

/// Which pods of Kubernetes are lent to.
struct PodsPolicy {
  std::map<std::string, std::string> prepared{};  ///< the tenant of each, by name; by the pod's UID
  /// A pod that nothing was prepared for is a tenant with Policy::others; else it is refused.
  bool others = false;
  /// There are pods here: whoever the kernel does not show may be in one, and is refused.
  bool expected = false;
};

/// Everything that is configured and concerns decisions.
struct Policy {
  std::vector<DevicePolicy> devices;
  std::vector<TenantRule> tenants;
  /// Quotas of users without a rule, each of whom is a tenant; none: they are refused.
  std::optional<std::vector<Quota>> others;
  std::string others_parent{};  ///< the rule that they belong to; empty: none
  PodsPolicy pods{};
  std::size_t max_sessions = 4096;
  std::size_t max_sessions_per_tenant = 4096;
  std::size_t max_slices_per_session = 64;
  std::size_t max_requests_per_session = 64;  ///< waiting at the same time
  /// Waiting at the same time, of all sessions. A user that has none waiting may always have one.
  std::size_t max_requests = 16'384;
  /// An eighth of them for each user and each pod, at least one.
  std::size_t max_requests_per_user() const { return std::max<std::size_t>(max_requests / 8, 1); }
  /// Longest time a request may wait; longer wishes are cut down to it.
  Duration max_wait = std::chrono::hours(1);
  /// While memory is on its way back, even a request that may not wait is given this long: nobody holds
  /// that memory, and it is a matter of milliseconds.
  Duration return_grace = std::chrono::milliseconds(250);
  PastBrokerPolicy past_broker{};
  /// A request that has waited this long is not overtaken any more, save by claims.
  Duration aging = std::chrono::minutes(10);
};

inline constexpr std::size_t kMaxTenantDepth = 8;

/// Checks that the policy can hold: what is promised to and below every tenant within its limit, all promises
/// of a device together within its pool; devices and tenants named once, a quota for every device, whole
/// pools; weights and priorities in their range; parents known, without users of their own, at most
/// kMaxTenantDepth deep and without a circle. What is promised to each of the others counts when it comes.
/// Errors  kInvalidArgument: names the tenant, the device and the figures, and says what to change.
Result<void> check(const Policy& policy);

/// In the order of the policy.
std::vector<std::string> uuids_of(const Policy& policy);

/// Who is charged for a peer, and with which quotas.
struct TenantMatch {
  std::string name;
  std::string parent{};  ///< empty: none
  std::vector<Quota> quotas;
};

/// The tenant of `peer`: of a pod, that which was prepared for it, else as one of the others, if they may be
/// pods. Of whoever is in no pod, by user, else by one of its groups (the primary first), else as one of the
/// others.
/// Errors  kPermissionDenied: no rule covers the peer.
Result<TenantMatch> tenant_of(const Policy& policy, const Peer& peer);

/// The same for a session that has a tenant, `now`. What was prepared for its pod may have been taken away:
/// then it stays where it is, and may not grow, even where other pods need nothing prepared. The same holds
/// for whoever no rule covers any more.
TenantMatch tenant_of_session(const Policy& policy, const Peer& peer, const std::string& now);

/// Names of tenants that begin so are of pods that nothing was prepared for; with `NAMESPACE/NAME` after it,
/// of pods that something was prepared for.
inline constexpr const char* kPodTenantPrefix = "pod ";

}  // namespace gpumem::core
