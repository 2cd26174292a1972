#include "daemon/host/config/policy_compiler.h"

#include <algorithm>
#include <iterator>

#include "daemon/core/words/policy.h"

namespace gpumem::host {
namespace {

// Quotas that say more first.
using Layers = std::vector<const QuotasConfig*>;

// The value of the first layer that has one; in a layer, a device's own quota comes before the general one,
// which is of GPUs.
template <class Value>
std::optional<Value> said(const Layers& layers, const std::string& uuid,
                          std::optional<Value> QuotaConfig::*member) {
  for (const QuotasConfig* quotas : layers) {
    const auto own = quotas->by_device.find(uuid);
    if (own != quotas->by_device.end() && own->second.*member) return own->second.*member;
    if (uuid != kHostStore && quotas->everywhere.*member) return quotas->everywhere.*member;
  }
  return std::nullopt;
}

// Shares that add up to the pool are to fit in it, so they are rounded down; but not to nothing.
Result<Bytes> compile_guarantee(const Amount& amount, const core::DevicePolicy& device) {
  const Bytes exact = amount.of(device.pool);
  if (amount.kind() != Amount::Kind::kAbsolute && !exact.is_zero())
    return std::max(exact.rounded_down(device.granularity), device.granularity);
  if (const auto rounded = exact.rounded_up(device.granularity)) return *rounded;
  return Error{Code::kInvalidArgument, "a guarantee of " + amount.text() + " is more than any device has"};
}

Result<Bytes> compile_limit(const Amount& amount, const core::DevicePolicy& device) {
  const Bytes exact = amount.of(device.pool);
  if (!exact.is_zero() && exact < device.granularity) {
    const bool may_lack_unit = amount.kind() == Amount::Kind::kAbsolute && exact < kibibytes(1);
    return Error{Code::kInvalidArgument,
                 "a limit of " + amount.text() + " is less than the " + to_string(device.granularity) +
                     " that are the least " + device.uuid + " can lend; raise it, or write 0" +
                     (may_lack_unit ? "; a number without a unit is bytes, and 8GiB has one" : "")};
  }
  // A limit of more than the pool says the same as the pool; a guarantee must not be cut down silently.
  return std::min(exact.rounded_down(device.granularity), device.pool);
}

Result<core::Quota> compile_quota(const Layers& layers, const core::DevicePolicy& device) {
  const auto guarantee = compile_guarantee(
      said(layers, device.uuid, &QuotaConfig::guarantee).value_or(Amount::absolute({})), device);
  if (!guarantee) return guarantee.error();
  const auto limit =
      compile_limit(said(layers, device.uuid, &QuotaConfig::limit).value_or(Amount::percent(10'000)), device);
  if (!limit) return limit.error();
  const auto reserve = said(layers, device.uuid, &QuotaConfig::reserve);
  return core::Quota{*guarantee, *limit,
                     said(layers, device.uuid, &QuotaConfig::weight).value_or(core::kDefaultWeight),
                     said(layers, device.uuid, &QuotaConfig::priority).value_or(core::kDefaultPriority),
                     reserve ? reserve->of(device.pool).rounded_down(device.granularity) : core::kUnlimited};
}

// Empty: the limit is as it is written.
std::string warning_of_limit(const std::string& who, const Layers& layers, const core::DevicePolicy& device) {
  const auto limit = said(layers, device.uuid, &QuotaConfig::limit);
  if (!limit || limit->of(device.pool) <= device.pool) return "";
  const std::string pool = to_string(device.pool);
  return who + ": limit " + limit->text() + " is more than the pool of " + pool + " on " + device.uuid +
         "; it is the pool";
}

Result<std::vector<core::Quota>> compile_quotas(const std::string& who, const Layers& layers,
                                                const std::vector<core::DevicePolicy>& devices,
                                                std::vector<std::string>& warnings) {
  std::vector<core::Quota> quotas;
  for (const core::DevicePolicy& device : devices) {
    auto quota = compile_quota(layers, device);
    if (!quota) return quota.error().in(who);
    if (auto words = warning_of_limit(who, layers, device); !words.empty())
      warnings.push_back(std::move(words));
    quotas.push_back(*quota);
  }
  return quotas;
}

bool is_lent(const std::string& uuid, const std::vector<core::DevicePolicy>& devices) {
  return std::ranges::find(devices, uuid, &core::DevicePolicy::uuid) != devices.end();
}

Result<void> check_uuids(const QuotasConfig& quotas, const std::string& tenant,
                         const std::vector<core::DevicePolicy>& devices) {
  for (const auto& [uuid, quota] : quotas.by_device) {
    if (is_lent(uuid, devices)) continue;
    if (uuid == kHostStore)
      return Error{Code::kInvalidArgument,
                   tenant + " has a host_limit, but there is no host store: add [host]"};
    return Error{Code::kInvalidArgument, tenant + " has a quota on " + uuid + ", which is not lent"};
  }
  return {};
}

// Without the used bytes of the device, returned memory of an elastic pool could not be proved free.
void compile_pool_mode(const DeviceConfig& config, const DeviceFacts& facts, core::DevicePolicy& device,
                       std::vector<std::string>& warnings) {
  device.pool_mode = config.pool;
  device.has_display = facts.has_display;
  if (facts.no_use.empty() || config.pool == core::PoolMode::kAll) return;
  if (device.is_elastic())
    warnings.push_back("the pool of " + device.uuid +
                       " cannot be elastic, and is created whole: " + facts.no_use);
  device.pool_mode = core::PoolMode::kAll;
}

Result<core::DevicePolicy> compile_host(const Config& config, const DeviceFacts& facts) {
  // Without [host], memory that the broker before has lent stays lent until it comes back.
  const Amount size = config.host ? config.host->size : Amount::absolute({});
  core::DevicePolicy store;
  store.uuid = kHostStore;
  store.name = facts.device.name;
  store.total = facts.device.total;
  store.granularity = facts.device.granularity;
  if (size.of(store.total) > store.total)
    return Error{Code::kInvalidArgument, "[host] size = " + size.text() +
                                             " is more than the memory of this machine, which has " +
                                             to_string(store.total)};
  store.pool = std::max(size.of(store.total).rounded_down(store.granularity), facts.lent);
  if (store.pool.is_zero())
    return Error{Code::kInvalidArgument, "[host] size = " + size.text() +
                                             " leaves an empty store; the least is " +
                                             to_string(store.granularity)};
  store.reclaim = config.any_device.reclaim;
  store.pool_mode = core::PoolMode::kElastic;
  store.no_fabric = "memory of the host has none";
  return store;
}

Result<core::DevicePolicy> compile_device(const Config& config, const DeviceFacts& facts,
                                          std::vector<std::string>& warnings) {
  if (facts.is_host && !config.host)
    warnings.push_back("[host] is gone, but " + to_string(facts.lent) +
                       " of host memory are lent: they stay the store until the broker starts without them");
  if (facts.is_host) return compile_host(config, facts);
  core::DevicePolicy device;
  device.uuid = to_string(facts.device.uuid);
  device.name = facts.device.name;
  device.total = facts.device.total;
  device.granularity = facts.device.granularity;
  const auto own = config.devices.find(device.uuid);
  const DeviceConfig& how = own == config.devices.end() ? config.any_device : own->second;
  const Amount& reserve = how.reserve;
  device.pool = reserve.of(device.total).rounded_down(device.granularity);
  if (device.pool > device.total)
    return Error{Code::kInvalidArgument, "cannot reserve " + reserve.text() + " of " + device.uuid +
                                             ": it has " + to_string(device.total)};
  device.pool = std::max(device.pool, facts.lent);
  if (device.pool.is_zero())
    return Error{Code::kInvalidArgument,
                 "reserving " + reserve.text() + " of " + device.uuid + " leaves an empty pool"};
  if (how.context_overhead > device.total)
    return Error{Code::kInvalidArgument, "a context_overhead of " + to_string(how.context_overhead) +
                                             " is more than the " + to_string(device.total) + " of " +
                                             device.uuid};
  device.reclaim = how.reclaim;
  device.context_overhead = how.context_overhead;
  device.contexts_in_limit = how.contexts_in_limit;
  if (how.contexts_in_limit && how.context_overhead.is_zero())
    device.context_overhead = core::usual_context(device.total, config.past_broker.allowance);
  device.no_fabric = facts.no_fabric;
  compile_pool_mode(how, facts, device, warnings);
  return device;
}

Result<std::vector<core::DevicePolicy>> compile_devices(const Config& config,
                                                        const std::vector<DeviceFacts>& all,
                                                        std::vector<std::string>& warnings) {
  std::vector<core::DevicePolicy> devices;
  for (const DeviceFacts& facts : all) {
    const bool is_chosen = config.devices.empty() || config.devices.contains(facts.uuid());
    if (facts.is_host ? !config.host && facts.lent.is_zero() : !is_chosen) continue;
    auto device = compile_device(config, facts, warnings);
    if (!device) return device.error();
    devices.push_back(std::move(*device));
  }
  for (const auto& [uuid, how] : config.devices) {
    if (is_lent(uuid, devices)) continue;
    return Error{Code::kInvalidArgument,
                 "device '" + uuid + "' is configured, but this machine does not have it"};
  }
  return devices;
}

// The first rule alone would count, while the other's guarantee is kept for nobody.
Result<void> check_covered_once(const core::TenantRule& rule, const std::vector<core::TenantRule>& others) {
  for (const core::TenantRule& other : others) {
    if ((!rule.uid && !rule.gid) || rule.uid != other.uid || rule.gid != other.gid) continue;
    return Error{Code::kInvalidArgument,
                 "tenants '" + other.name + "' and '" + rule.name + "' are both " +
                     (rule.uid ? "user " + std::to_string(*rule.uid) : "group " + std::to_string(*rule.gid))};
  }
  return {};
}

Result<core::TenantRule> compile_tenant(const TenantConfig& tenant, const QuotaOverlay& overlay,
                                        const std::vector<core::DevicePolicy>& devices,
                                        std::vector<std::string>& warnings) {
  const std::string who = "tenant '" + tenant.name + "'";
  core::TenantRule rule;
  rule.name = tenant.name;
  rule.parent = tenant.parent;
  rule.fabric_handles = tenant.fabric_handles;
  rule.uid = tenant.uid;
  rule.gid = tenant.gid;
  if (auto ok = check_uuids(tenant.quotas, who, devices); !ok) return ok.error();
  Layers layers{&tenant.quotas};
  const auto set = overlay.tenants.find(tenant.name);
  if (set != overlay.tenants.end()) layers.insert(layers.begin(), &set->second);
  auto quotas = compile_quotas(who, layers, devices, warnings);
  if (!quotas) return quotas.error();
  rule.quotas = std::move(*quotas);
  return rule;
}

// Why a tenant that the configuration does not name cannot have quotas of its own; empty: it can.
std::string obstacle(const std::string& name, const Config& config, const core::Policy& policy) {
  const auto uid = core::user_of_tenant(name);
  if (pods::is_pods_name(name)) return "what pods may have is what their claims say";
  if (!uid) return "the configuration has no such tenant";
  const auto rule = std::ranges::find(policy.tenants, uid, &core::TenantRule::uid);
  if (rule != policy.tenants.end()) return "user " + std::to_string(*uid) + " is tenant '" + rule->name + "'";
  return config.others ? "" : "the configuration refuses users without a tenant";
}

Result<void> compile_others(const Config& config, Compiled& compiled) {
  core::Policy& policy = compiled.policy;
  if (!config.others) return {};
  if (auto ok = check_uuids(config.others->quotas, "the default", policy.devices); !ok) return ok.error();
  auto quotas = compile_quotas("the default", {&config.others->quotas}, policy.devices, compiled.warnings);
  if (!quotas) return quotas.error();
  policy.others = std::move(*quotas);
  policy.others_parent = config.others->parent;
  return {};
}

// Users without a tenant for whom quotas were set become tenants by that.
Result<void> compile_users(const Config& config, const QuotaOverlay& overlay, Compiled& compiled) {
  core::Policy& policy = compiled.policy;
  for (const auto& [name, quotas] : overlay.tenants) {
    for (const auto& [uuid, quota] : quotas.by_device) {
      if (!is_lent(uuid, policy.devices)) compiled.unapplied.push_back({name, uuid, "it is not lent"});
    }
    if (std::ranges::count(config.tenants, name, &TenantConfig::name) != 0) continue;
    if (std::string why = obstacle(name, config, policy); !why.empty()) {
      compiled.unapplied.push_back({name, "", std::move(why)});
      continue;
    }
    auto compiled_quotas = compile_quotas("tenant '" + name + "'", {&quotas, &config.others->quotas},
                                          policy.devices, compiled.warnings);
    if (!compiled_quotas) return compiled_quotas.error();
    policy.tenants.push_back(
        {name, config.others->parent, core::user_of_tenant(name), std::nullopt, std::move(*compiled_quotas)});
  }
  return {};
}

}  // namespace

DeviceFacts facts_of_host(Bytes total) {
  DeviceFacts facts;
  facts.is_host = true;
  facts.device.name = "host memory";
  facts.device.total = total;
  facts.device.granularity = mebibytes(2);
  return facts;
}

Result<Compiled> compile_policy(const Config& config, const std::vector<DeviceFacts>& all,
                                const QuotaOverlay& overlay, const pods::PreparedClaims& claims) {
  Compiled compiled;
  core::Policy& policy = compiled.policy;
  auto devices = compile_devices(config, all, compiled.warnings);
  if (!devices) return devices.error();
  policy.devices = std::move(*devices);
  for (const TenantConfig& tenant : config.tenants) {
    auto rule = compile_tenant(tenant, overlay, policy.devices, compiled.warnings);
    if (!rule) return rule.error();
    if (auto ok = check_covered_once(*rule, policy.tenants); !ok) return ok.error();
    policy.tenants.push_back(std::move(*rule));
  }
  if (auto ok = compile_others(config, compiled); !ok) return ok.error();
  if (auto ok = compile_users(config, overlay, compiled); !ok) return ok.error();
  std::ranges::move(compile_pods(config.kubernetes, claims, policy), std::back_inserter(compiled.unapplied));
  policy.max_sessions = config.max_sessions;
  policy.max_sessions_per_tenant = config.max_sessions_per_tenant;
  policy.max_wait = std::chrono::seconds(config.max_wait_seconds);
  policy.aging = config.aging;
  policy.reserve_idle = config.reserve_idle;
  policy.past_broker = config.past_broker;
  if (auto ok = core::check(policy); !ok) return ok.error();
  return compiled;
}

}  // namespace gpumem::host
