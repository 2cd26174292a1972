#pragma once
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "daemon/core/words/policy.h"
#include "daemon/host/config/config.h"
#include "daemon/host/config/quota_overlay.h"
#include "daemon/pods/prepared_claims.h"

namespace gpumem::host {

/// The driver's data of a device, and what the previous broker has left there.
struct DeviceFacts {
  cuda::Device device;
  bool has_display = false;                  ///< a display is connected to it
  std::string no_use = {};                   ///< why the driver does not tell its used bytes; empty: it does
  Bytes lent{};                              ///< to clients of the previous broker that may still use it
  bool is_host = false;                      ///< the machine's memory, for the host store
  std::string no_fabric = core::kFabricOff;  ///< why its extents have no fabric handles; empty: they have
  std::string uuid() const { return is_host ? std::string(kHostStore) : to_string(device.uuid); }
};

/// The machine's memory, of `total` bytes. Page size and more are the host store's.
DeviceFacts facts_of_host(Bytes total);

/// A part of an overlay, or of a claim, that does not apply to the configuration.
struct Unapplied {
  std::string tenant;
  std::string device;  ///< empty: all of the tenant's
  std::string why;
};

struct Compiled {
  core::Policy policy;
  std::vector<Unapplied> unapplied;
  std::vector<std::string> warnings;  ///< about values in force that differ from the file
};

/// Compiles a configuration, the quotas set over it, and the claims prepared for pods into the policy for the
/// machine's devices: amounts into bytes. `config`  with the numbers of its accounts (look_up()). The policy
/// is checked. A limit, and a share, is rounded down to the granularity; a guarantee in bytes is rounded up.
/// A guarantee above zero never becomes zero.
/// Errors  kInvalidArgument (unknown device; more reserved than there is; a limit below the
///         granularity; quotas that cannot hold together).
Result<Compiled> compile_policy(const Config& config, const std::vector<DeviceFacts>& devices,
                                const QuotaOverlay& overlay = {}, const pods::PreparedClaims& claims = {});

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
