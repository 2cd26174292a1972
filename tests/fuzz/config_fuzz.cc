// Any text as the configuration, and any as the quotas set over it: an error, or a policy that can hold.
#include <algorithm>
#include <map>

#include "daemon/core/broker/broker.h"
#include "daemon/host/config/accounts.h"
#include "daemon/host/config/policy_compiler.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/vocabulary.h"

namespace gpumem::fuzz {
namespace {

using core::DeviceIndex, core::Policy, core::Quota, core::TenantRule;

std::vector<host::DeviceFacts> machine() {
  std::vector<host::DeviceFacts> devices(2);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    devices[i].device.uuid.bytes.fill(static_cast<std::uint8_t>(i + 1));
    devices[i].device.name = "fuzz";
    devices[i].device.granularity = mebibytes(2);
  }
  devices[0].device.total = gibibytes(32);
  devices[1].device.total = Bytes{gibibytes(16).count + 4096};  // no multiple of the granularity
  devices[1].lent = gibibytes(1);
  require(
      to_string(devices[0].device.uuid) == kFirstDevice && to_string(devices[1].device.uuid) == kSecondDevice,
      "the vocabulary names the devices");
  return devices;
}

void require_quotas(const Policy& policy, const std::vector<Quota>& quotas) {
  require(quotas.size() == policy.devices.size(), "there is a quota for each device");
  for (DeviceIndex i = 0; i < quotas.size(); ++i) {
    const Bytes piece = policy.devices[i].granularity;
    const Quota& quota = quotas[i];
    require(quota.guarantee <= quota.limit, "a guarantee is within its limit");
    require(quota.limit <= policy.devices[i].pool, "a limit is within the pool");
    require(quota.limit.count % piece.count == 0 && quota.guarantee.count % piece.count == 0,
            "quotas are multiples of the granularity");
    require(quota.weight >= 1 && quota.weight <= core::kMaxWeight, "a weight is in its range");
    require(quota.priority <= core::kMaxPriority, "a priority is in its range");
  }
}

const TenantRule* rule_of(const Policy& policy, const std::string& name) {
  const auto found = std::ranges::find(policy.tenants, name, &TenantRule::name);
  return found == policy.tenants.end() ? nullptr : &*found;
}

void require_tree(const Policy& policy) {
  for (const TenantRule& rule : policy.tenants) {
    require(std::ranges::count(policy.tenants, rule.name, &TenantRule::name) == 1, "a name is of one tenant");
    std::size_t depth = 1;
    for (const TenantRule* at = &rule; !at->parent.empty(); ++depth) {
      at = rule_of(policy, at->parent);
      require(at != nullptr, "a parent is a tenant");
      require(!at->uid && !at->gid, "a parent has no processes of its own");
      require(depth <= core::kMaxTenantDepth, "the tree has an end");
    }
  }
}

// What is promised to the rule and below it.
Bytes promised(const Policy& policy, const TenantRule& rule, DeviceIndex device) {
  Bytes below;
  for (const TenantRule& child : policy.tenants)
    if (child.parent == rule.name) below += promised(policy, child, device);
  require(below <= rule.quotas[device].limit, "what is promised below a tenant is within its limit");
  return std::max(below, rule.quotas[device].guarantee);
}

void require_promises(const Policy& policy) {
  for (DeviceIndex i = 0; i < policy.devices.size(); ++i) {
    Bytes sum;
    for (const TenantRule& rule : policy.tenants)
      if (rule.parent.empty()) sum += promised(policy, rule, i);
    require(sum <= policy.devices[i].pool, "the promises of a device are within its pool");
  }
}

void require_devices(const Policy& policy, const std::vector<host::DeviceFacts>& facts) {
  for (const core::DevicePolicy& device : policy.devices) {
    const auto known = std::ranges::find_if(
        facts, [&](const host::DeviceFacts& one) { return to_string(one.device.uuid) == device.uuid; });
    require(known != facts.end(), "a device that is lent is the machine's");
    require(!device.pool.is_zero() && device.pool.count % device.granularity.count == 0, "a pool is whole");
    require(device.pool <= known->device.total, "a pool is part of its device");
    require(device.pool >= known->lent, "a pool has what is lent already");
    require(device.context_overhead <= device.total, "a context fits the device");
  }
}

// A broker with that policy charges whoever comes by the quotas that the policy says.
void require_broker(const Policy& policy) {
  core::Broker broker(policy);
  const core::TimePoint now{std::chrono::hours(1)};
  for (std::uint32_t uid = 0; uid < 3; ++uid) {
    const core::Peer peer{.pid = 1000 + uid, .uid = uid, .gids = {uid}, .command = "fuzz"};
    const auto match = core::tenant_of(policy, peer);
    if (match) require_quotas(policy, match->quotas);
    // A newcomer whose guarantee finds no room is refused; whoever no rule covers is, always.
    const auto opened = broker.open_session(peer, "fuzz", now);
    require(match.has_value() || !opened.has_value(), "only those whom a rule covers come in");
    if (opened) require(broker.tenant_name(*opened) == match->name, "a session is of its tenant");
  }
  for (const core::TenantView& tenant : broker.tenants())
    require(tenant.quota.guarantee <= tenant.quota.limit, "a tenant's guarantee is within its limit");
}

// What was set at run time is written as it was read.
host::QuotaOverlay overlay_of(const std::string& text) {
  const auto overlay = host::parse_overlay(text, "quotas.toml");
  if (!overlay) return {};
  const auto again = host::parse_overlay(host::overlay_text(*overlay), "again");
  require(again.has_value(), "what is written can be read");
  require(*again == *overlay, "what is read is what was written");
  return *overlay;
}

void run(std::string_view bytes) {
  static const auto kMachine = machine();
  auto config = host::parse_config(spelled_out(take_part(bytes)), "fuzz.toml");
  const host::QuotaOverlay overlay = overlay_of(spelled_out(bytes));
  if (!config) return require(!config.error().message.empty(), "an error has words");
  host::look_up(*config);
  const auto compiled = host::compile_policy(*config, kMachine, overlay);
  if (!compiled) return require(!compiled.error().message.empty(), "an error has words");
  const Policy& policy = compiled->policy;
  require(core::check(policy).has_value(), "a policy that was compiled is checked");
  require_devices(policy, kMachine);
  for (const TenantRule& rule : policy.tenants) require_quotas(policy, rule.quotas);
  if (policy.others) require_quotas(policy, *policy.others);
  require_tree(policy);
  require_promises(policy);
  require_broker(policy);
}

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
