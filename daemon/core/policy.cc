#include "daemon/core/policy.h"

#include <algorithm>
#include <set>

#include "shm/pages.h"

namespace gpumem::core {
namespace {

Result<void> check_quota(const std::string& tenant, const DevicePolicy& device, const Quota& quota) {
  if (quota.guarantee <= quota.limit) return {};
  return Error{Code::kInvalidArgument, "tenant '" + tenant + "': its guarantee of " +
                                           to_string(quota.guarantee) + " on " + device.uuid +
                                           " is more than its limit of " + to_string(quota.limit)};
}

Result<void> check_sum(const Policy& policy, DeviceIndex index) {
  const DevicePolicy& device = policy.devices[index];
  Bytes sum;
  for (const TenantRule& tenant : policy.tenants) {
    const Bytes guarantee = tenant.quotas[index].guarantee;
    const auto next = sum.plus(guarantee);
    if (!next || *next > device.pool) {
      return Error{Code::kInvalidArgument,
                   "the guarantees on " + device.uuid + " exceed its pool of " + to_string(device.pool) +
                       ": tenant '" + tenant.name + "' asks for " + to_string(guarantee) + " on top of " +
                       to_string(sum) + "; lower a guarantee or reserve more of the device"};
    }
    sum = *next;
  }
  return {};
}

Error invalid(std::string words) { return {Code::kInvalidArgument, std::move(words)}; }

// What the rest of the core takes for granted.
Result<void> check_shape(const Policy& policy) {
  if (policy.devices.size() > kMaxDevices) {
    return invalid(std::to_string(policy.devices.size()) + " devices are more than the " +
                   std::to_string(kMaxDevices) + " that one broker can lend");
  }
  if (policy.max_wait < Duration::zero()) return invalid("the longest wait is negative");
  std::set<std::string> names;
  for (const DevicePolicy& device : policy.devices) {
    if (!names.insert(device.uuid).second) return invalid("device " + device.uuid + " is named twice");
    if (device.granularity.is_zero() || device.pool != device.pool.rounded_down(device.granularity)) {
      return invalid("the pool of " + to_string(device.pool) + " on " + device.uuid + " is no multiple of " +
                     to_string(device.granularity));
    }
  }
  names.clear();
  for (const TenantRule& tenant : policy.tenants) {
    if (!names.insert(tenant.name).second) return invalid("tenant '" + tenant.name + "' is named twice");
    if (tenant.quotas.size() != policy.devices.size()) {
      return invalid("tenant '" + tenant.name + "' has no quota for every device");
    }
  }
  if (policy.others && policy.others->size() != policy.devices.size()) {
    return invalid("the default has no quota for every device");
  }
  return {};
}

}  // namespace

Result<void> check(const Policy& policy) {
  if (auto ok = check_shape(policy); !ok) return ok.error();
  for (DeviceIndex i = 0; i < policy.devices.size(); ++i) {
    for (const TenantRule& tenant : policy.tenants) {
      if (auto ok = check_quota(tenant.name, policy.devices[i], tenant.quotas[i]); !ok) return ok.error();
    }
    if (policy.others) {
      if (auto ok = check_quota("default", policy.devices[i], (*policy.others)[i]); !ok) return ok.error();
    }
    if (auto ok = check_sum(policy, i); !ok) return ok.error();
  }
  return {};
}

Result<TenantMatch> tenant_of(const Policy& policy, const Peer& peer) {
  const auto match = [&](auto&& covers) -> const TenantRule* {
    const auto rule = std::find_if(policy.tenants.begin(), policy.tenants.end(), covers);
    return rule == policy.tenants.end() ? nullptr : &*rule;
  };
  if (const auto* rule = match([&](const TenantRule& r) { return r.uid == peer.uid; })) {
    return TenantMatch{rule->name, rule->quotas};
  }
  for (const std::uint32_t gid : peer.gids) {
    if (const auto* rule = match([&](const TenantRule& r) { return r.gid == gid; })) {
      return TenantMatch{rule->name, rule->quotas};
    }
  }
  const std::string name = "uid:" + std::to_string(peer.uid);
  if (policy.others) return TenantMatch{name, *policy.others};
  return Error{Code::kPermissionDenied, name +
                                            " is no tenant of this broker and it takes no others; ask the "
                                            "administrator for a [[tenant]] or a [default]"};
}

}  // namespace gpumem::core
