#pragma once
#include <vector>

#include "daemon/core/policy.h"
#include "daemon/host/config.h"
#include "daemon/host/policy_compiler.h"
#include "daemon/pods/prepared_claims.h"

namespace gpumem::host {

/// Puts the tenants of prepared pods into `policy`, which has its devices and other tenants already. Each
/// goes below its namespace, if that is a tenant, else below the parent that is configured for pods. Returns
/// the parts of claims on devices that are not lent. A limit is rounded down to the granularity and cut down
/// to the pool, a guarantee rounded up, but not beyond the limit.
std::vector<Unapplied> compile_pods(const KubernetesConfig& config, const pods::PreparedClaims& claims,
                                    core::Policy& policy);

/// Whether the devices of `policy` can lend what `claim` asks for, each by itself.
/// Errors  kNotFound: one is not lent; kInvalidArgument: a limit is less than the least that it lends.
Result<void> check_amounts(const core::PodClaim& claim, const core::Policy& policy);

}  // namespace gpumem::host
