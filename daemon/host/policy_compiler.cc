#include "daemon/host/policy_compiler.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <charconv>

namespace gpumem::host {
namespace {

std::optional<std::uint32_t> as_number(const std::string& text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<std::uint32_t> user_id(const std::string& user) {
  if (const auto number = as_number(user)) return *number;
  if (const passwd* entry = ::getpwnam(user.c_str())) return entry->pw_uid;
  return Error{Code::kInvalidArgument, "there is no user '" + user + "' on this machine"};
}

Result<std::uint32_t> group_id(const std::string& group) {
  if (const auto number = as_number(group)) return *number;
  if (const ::group* entry = ::getgrnam(group.c_str())) return entry->gr_gid;
  return Error{Code::kInvalidArgument, "there is no group '" + group + "' on this machine"};
}

core::Quota compile_quota(const QuotasConfig& quotas, const core::DevicePolicy& device) {
  const auto own = quotas.by_device.find(device.uuid);
  const QuotaConfig special = own == quotas.by_device.end() ? QuotaConfig{} : own->second;
  const QuotaConfig& general = quotas.everywhere;
  const Amount guarantee = special.guarantee.value_or(general.guarantee.value_or(Amount::absolute({})));
  const Amount limit = special.limit.value_or(general.limit.value_or(Amount::percent(10'000)));
  const auto in_pool = [&](const Amount& amount) {
    return amount.of(device.pool).rounded_down(device.granularity);
  };
  // A limit of more than the pool says the same as the pool; a guarantee must not be cut down silently.
  return {in_pool(guarantee), std::min(in_pool(limit), device.pool)};
}

Result<void> check_uuids(const QuotasConfig& quotas, const std::string& tenant,
                         const std::vector<core::DevicePolicy>& devices) {
  for (const auto& [uuid, quota] : quotas.by_device) {
    if (std::ranges::find(devices, uuid, &core::DevicePolicy::uuid) == devices.end()) {
      return Error{Code::kInvalidArgument,
                   "tenant '" + tenant + "' has a quota on " + uuid + ", which is not lent"};
    }
  }
  return {};
}

Result<core::DevicePolicy> compile_device(const Config& config, const DeviceFacts& facts) {
  core::DevicePolicy device;
  device.uuid = to_string(facts.device.uuid);
  device.name = facts.device.name;
  device.total = facts.device.total;
  device.granularity = facts.device.granularity;
  const auto own = config.reserve_by_device.find(device.uuid);
  const Amount reserve = own == config.reserve_by_device.end() ? config.reserve : own->second;
  // An absolute amount is a demand; a share is taken of what can be had.
  const bool demanded = reserve.kind() == Amount::Kind::kAbsolute;
  device.pool = reserve.of(demanded ? facts.device.total : facts.obtainable).rounded_down(device.granularity);
  if (device.pool > facts.obtainable) {
    return Error{Code::kInvalidArgument, "cannot reserve " + reserve.text() + " of " + device.uuid +
                                             ": it has " + to_string(facts.device.total) + ", of which " +
                                             to_string(facts.obtainable) + " can be had"};
  }
  if (device.pool.is_zero()) {
    return Error{Code::kInvalidArgument,
                 "reserving " + reserve.text() + " of " + device.uuid + " leaves an empty pool"};
  }
  return device;
}

Result<std::vector<core::DevicePolicy>> compile_devices(const Config& config,
                                                        const std::vector<DeviceFacts>& all) {
  std::vector<core::DevicePolicy> devices;
  std::vector<std::string> found;
  for (const DeviceFacts& facts : all) {
    const std::string uuid = to_string(facts.device.uuid);
    const bool chosen = config.devices.empty() || std::ranges::count(config.devices, uuid) != 0;
    if (!chosen) continue;
    auto device = compile_device(config, facts);
    if (!device) return device.error();
    devices.push_back(std::move(*device));
    found.push_back(uuid);
  }
  for (const std::string& uuid : config.devices) {
    if (std::ranges::count(found, uuid) == 0) {
      return Error{Code::kInvalidArgument,
                   "device '" + uuid + "' is configured, but this machine does not have it"};
    }
  }
  return devices;
}

// The first rule alone would count, while the other's guarantee is kept for nobody.
Result<void> check_covered_once(const core::TenantRule& rule, const std::vector<core::TenantRule>& others) {
  for (const core::TenantRule& other : others) {
    if (rule.uid != other.uid || rule.gid != other.gid) continue;
    return Error{Code::kInvalidArgument,
                 "tenants '" + other.name + "' and '" + rule.name + "' are both " +
                     (rule.uid ? "user " + std::to_string(*rule.uid) : "group " + std::to_string(*rule.gid))};
  }
  return {};
}

Result<core::TenantRule> compile_tenant(const TenantConfig& tenant,
                                        const std::vector<core::DevicePolicy>& devices) {
  core::TenantRule rule;
  rule.name = tenant.name;
  if (!tenant.user.empty()) {
    auto uid = user_id(tenant.user);
    if (!uid) return uid.error().in("tenant '" + tenant.name + "'");
    rule.uid = *uid;
  } else {
    auto gid = group_id(tenant.group);
    if (!gid) return gid.error().in("tenant '" + tenant.name + "'");
    rule.gid = *gid;
  }
  if (auto ok = check_uuids(tenant.quotas, tenant.name, devices); !ok) return ok.error();
  for (const core::DevicePolicy& device : devices)
    rule.quotas.push_back(compile_quota(tenant.quotas, device));
  return rule;
}

}  // namespace

Result<core::Policy> compile_policy(const Config& config, const std::vector<DeviceFacts>& all) {
  core::Policy policy;
  auto devices = compile_devices(config, all);
  if (!devices) return devices.error();
  policy.devices = std::move(*devices);
  for (const TenantConfig& tenant : config.tenants) {
    auto rule = compile_tenant(tenant, policy.devices);
    if (!rule) return rule.error();
    if (auto ok = check_covered_once(*rule, policy.tenants); !ok) return ok.error();
    policy.tenants.push_back(std::move(*rule));
  }
  if (config.others) {
    if (auto ok = check_uuids(*config.others, "default", policy.devices); !ok) return ok.error();
    policy.others.emplace();
    for (const core::DevicePolicy& device : policy.devices) {
      policy.others->push_back(compile_quota(*config.others, device));
    }
  }
  policy.max_sessions = config.max_sessions;
  policy.max_sessions_per_tenant = config.max_sessions_per_tenant;
  policy.max_wait = std::chrono::seconds(config.max_wait_seconds);
  if (auto ok = core::check(policy); !ok) return ok.error();
  return policy;
}

}  // namespace gpumem::host
