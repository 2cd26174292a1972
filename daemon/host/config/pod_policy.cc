#include "daemon/host/config/policy_compiler.h"

#include <algorithm>

namespace gpumem::host {
namespace {

// A guarantee is rounded up, but not beyond the limit: of a limit that is no whole number of granules nobody
// can have the rest. A guarantee of more than the pool stays that, to be refused and not cut down silently.
core::Quota quota_of(const core::ClaimAmount& amount, const core::DevicePolicy& device) {
  const Bytes limit = amount.limit.rounded_down(device.granularity);
  const Bytes guarantee = std::min(amount.guarantee.rounded_up(device.granularity).value_or(limit), limit);
  return {guarantee, std::max(std::min(limit, device.pool), guarantee)};
}

core::TenantRule rule_of(const pods::PreparedTenant& tenant, const KubernetesConfig& config,
                         const core::Policy& policy, std::vector<Unapplied>& unapplied) {
  core::TenantRule rule{.name = tenant.name, .parent = config.parent, .uid = {}, .gid = {}, .quotas = {}};
  const std::string space = std::string(kNamespacePrefix) + tenant.space;
  if (std::ranges::count(policy.tenants, space, &core::TenantRule::name) != 0) rule.parent = space;
  for (const core::DevicePolicy& device : policy.devices)
    rule.quotas.push_back({{}, device.is_host() ? device.pool : Bytes{}});
  for (const core::ClaimAmount& amount : tenant.amounts) {
    const auto device = std::ranges::find(policy.devices, amount.device, &core::DevicePolicy::uuid);
    if (device == policy.devices.end())
      unapplied.push_back({tenant.name, amount.device, "it is not lent"});
    else
      rule.quotas[static_cast<std::size_t>(device - policy.devices.begin())] = quota_of(amount, *device);
  }
  return rule;
}

}  // namespace

std::vector<Unapplied> compile_pods(const KubernetesConfig& config, const pods::PreparedClaims& claims,
                                    core::Policy& policy) {
  policy.pods = {.prepared = claims.tenants, .others = config.lend_unprepared, .expected = config.expected};
  std::vector<Unapplied> unapplied;
  for (const pods::PreparedTenant& tenant : tenants_of(claims))
    policy.tenants.push_back(rule_of(tenant, config, policy, unapplied));
  return unapplied;
}

Result<void> check_amounts(const core::PodClaim& claim, const core::Policy& policy) {
  for (const core::ClaimAmount& amount : claim.amounts) {
    const auto device = std::ranges::find(policy.devices, amount.device, &core::DevicePolicy::uuid);
    if (device == policy.devices.end()) {
      std::string lent;
      for (const std::string& uuid : core::uuids_of(policy)) lent += (lent.empty() ? "" : ", ") + uuid;
      return Error{Code::kNotFound, "device '" + amount.device + "' is not lent here; lent are: " + lent};
    }
    if (amount.limit >= device->granularity) continue;
    return Error{Code::kInvalidArgument, "a limit of " + to_string(amount.limit) + " is less than the " +
                                             to_string(device->granularity) + " that are the least " +
                                             device->uuid + " can lend; ask for more"};
  }
  return {};
}

}  // namespace gpumem::host
