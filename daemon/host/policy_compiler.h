#pragma once
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "daemon/core/policy.h"
#include "daemon/host/config.h"
#include "daemon/host/quota_overlay.h"
#include "daemon/pods/prepared_claims.h"

namespace gpumem::host {

/// What the driver knows of a device, and how much of it can be reserved now.
struct DeviceFacts {
  cuda::Device device;
  Bytes obtainable;  ///< total less what others use; total where that is not known
  Bytes lent{};      ///< of that, by the broker before, to clients that may still use it
  std::string no_fabric = core::kFabricOff;  ///< why its extents have no fabric handles; empty: they have
};

/// A part of an overlay, or of a claim, that nothing can be done with, as the configuration is.
struct Unapplied {
  std::string tenant;
  std::string device;  ///< empty: all of the tenant's
  std::string why;
};

struct Compiled {
  core::Policy policy;
  std::vector<Unapplied> unapplied;
  std::vector<std::string> warnings;  ///< of what is in force otherwise than it is written
};

/// Turns a configuration, what was set over it, and what is prepared for pods, into the policy for the
/// machine's devices: amounts into bytes, names of users and groups into numbers. The policy is checked. A
/// limit, and a share, is rounded down to the granularity; a guarantee in bytes is rounded up. A guarantee of
/// more than nothing stays that. Errors  kInvalidArgument (unknown user, group or device; more reserved than
/// there is; a limit below the
///         granularity; quotas that cannot hold together).
Result<Compiled> compile_policy(const Config& config, const std::vector<DeviceFacts>& devices,
                                const QuotaOverlay& overlay = {}, const pods::PreparedClaims& claims = {});

}  // namespace gpumem::host
