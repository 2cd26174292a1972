#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/broker/admin.h"

namespace gpumem::pods {

/// The claims that are prepared on this node, and the tenant of each pod.
///
/// Invariant  every pod of every claim has a tenant, and no other pod has; the pods of a claim have the same.
struct PreparedClaims {
  std::map<std::string, core::PodClaim> by_uid;
  std::map<std::string, std::string> tenants;  ///< their names, by the pod's UID
  bool operator==(const PreparedClaims&) const = default;
};

/// Whether there is a tenant of that name already, though nothing is prepared for it: what is left of pods
/// that were here before.
using IsTaken = std::function<bool(const std::string& tenant)>;

/// The claims with `claim`, in place of the one with its UID. All its pods become one tenant, together with
/// all pods of the tenants that they had. A tenant is never divided again while one of its pods has a claim.
/// The tenant of a single pod is `pod NAMESPACE/NAME`; that of several is `claim NAMESPACE/NAME` of the first
/// claim that they shared. Names are unique, and none is longer than kLongestName.
PreparedClaims with_claim(PreparedClaims claims, core::PodClaim claim, const IsTaken& is_taken);

/// The claims without the one with `uid`, which may be none of them.
PreparedClaims without_claim(PreparedClaims claims, const std::string& uid);

/// What is prepared for a tenant.
struct PreparedTenant {
  std::string name;
  std::string space;                       ///< the namespace of its pods
  std::vector<core::ClaimAmount> amounts;  ///< the sums, one for each device
};
/// By name.
std::vector<PreparedTenant> tenants_of(const PreparedClaims& claims);

/// Whether a tenant of that name can only be of pods: no other may have it.
bool is_pods_name(const std::string& tenant);

/// Whether it can be the name of a namespace: a label of DNS. Of pods and claims: several, with dots between.
bool is_namespace(const std::string& name);
bool is_object_name(const std::string& name);
/// Whether it can be the UID of a pod: container_of() finds no other.
bool is_pod_uid(const std::string& uid);

/// Whether a claim can be prepared. Errors  kInvalidArgument: no names of Kubernetes, no pods, pods of
/// another namespace, no amounts, or a limit that is nothing or less than the guarantee.
Result<void> check(const core::PodClaim& claim);

inline constexpr std::size_t kLongestName = 128;  ///< bytes, as on the lane

}  // namespace gpumem::pods
