#include "daemon/core/words/policy.h"

#include <algorithm>
#include <map>
#include <set>

#include "shm/pages.h"

namespace gpumem::core {
namespace {

Error invalid(std::string words) { return {Code::kInvalidArgument, std::move(words)}; }

Result<void> check_quota(const std::string& who, const DevicePolicy& device, const Quota& quota) {
  if (quota.guarantee > quota.limit && quota.limit >= device.pool) {
    return invalid(who + ": its guarantee of " + to_string(quota.guarantee) + " on " + device.uuid +
                   " is more than the whole pool of " + to_string(device.pool) + "; lower the guarantee");
  }
  if (quota.guarantee > quota.limit) {
    return invalid(who + ": its guarantee of " + to_string(quota.guarantee) + " on " + device.uuid +
                   " is more than its limit of " + to_string(quota.limit) +
                   "; lower the guarantee or raise the limit");
  }
  if (quota.weight < 1 || quota.weight > kMaxWeight)
    return invalid(who + ": its weight of " + std::to_string(quota.weight) + " on " + device.uuid +
                   " is not from 1 to " + std::to_string(kMaxWeight));
  if (quota.priority > kMaxPriority)
    return invalid(who + ": its priority of " + std::to_string(quota.priority) + " on " + device.uuid +
                   " is not from 0 to " + std::to_string(kMaxPriority));
  return {};
}

// Checks what the rest of the core relies on.
Result<void> check_devices(const Policy& policy) {
  if (policy.devices.size() > kMaxDevices)
    return invalid(std::to_string(policy.devices.size()) + " devices are more than the " +
                   std::to_string(kMaxDevices) + " that one broker can lend");
  if (policy.max_wait < Duration::zero()) return invalid("the longest wait is negative");
  std::set<std::string> names;
  for (const DevicePolicy& device : policy.devices) {
    if (!names.insert(device.uuid).second) return invalid("device " + device.uuid + " is named twice");
    if (device.granularity.is_zero() || device.pool != device.pool.rounded_down(device.granularity))
      return invalid("the pool of " + to_string(device.pool) + " on " + device.uuid + " is no multiple of " +
                     to_string(device.granularity));
  }
  return {};
}

Result<void> check_quotas(const std::string& who, const Policy& policy, const std::vector<Quota>& quotas) {
  if (quotas.size() != policy.devices.size()) return invalid(who + " has no quota for every device");
  for (DeviceIndex i = 0; i < quotas.size(); ++i) {
    if (auto ok = check_quota(who, policy.devices[i], quotas[i]); !ok) return ok.error();
  }
  return {};
}

// The tenants of a policy as a tree.
class Tree {
 public:
  explicit Tree(const Policy& policy) : policy_(policy) {}

  // To be called first: the rest relies on it.
  Result<void> check_shape() {
    for (const TenantRule& rule : policy_.tenants) {
      if (!by_name_.emplace(rule.name, &rule).second)
        return invalid("tenant '" + rule.name + "' is named twice");
    }
    for (const TenantRule& rule : policy_.tenants) {
      if (auto ok = check_parent("tenant '" + rule.name + "'", rule.parent); !ok) return ok.error();
      if (!rule.parent.empty()) members_[rule.parent].push_back(&rule);
    }
    if (auto ok = check_parent("the default", policy_.others_parent); !ok) return ok.error();
    for (const TenantRule& rule : policy_.tenants) {
      if (auto ok = check_circle(rule); !ok) return ok.error();
    }
    for (const TenantRule& rule : policy_.tenants) {
      if (auto ok = check_depth("tenant '" + rule.name + "'", rule.parent); !ok) return ok.error();
    }
    return check_depth("every user under the default", policy_.others_parent);
  }

  // Checks that the promises at the top fit into the pool, and those below each tenant into its limit.
  Result<void> check_promises(DeviceIndex device) const {
    const DevicePolicy& lent = policy_.devices[device];
    Bytes sum;
    for (const TenantRule& rule : policy_.tenants) {
      if (!rule.parent.empty()) continue;
      auto promised = this->promised(rule, device);
      if (!promised) return promised.error();
      const auto next = sum.plus(*promised);
      if (!next || *next > lent.pool) {
        return invalid("the guarantees on " + lent.uuid + " exceed its pool of " + to_string(lent.pool) +
                       by_how_much({}, device, lent.pool) + ": tenant '" + rule.name + "' asks for " +
                       to_string(*promised) + " on top of " + to_string(sum) +
                       "; lower a guarantee or reserve more of the device");
      }
      sum = *next;
    }
    return {};
  }

 private:
  const TenantRule* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

  Result<void> check_parent(const std::string& who, const std::string& name) const {
    if (name.empty()) return {};
    const TenantRule* parent = find(name);
    if (parent == nullptr)
      return invalid(who + " names the parent '" + name +
                     "', which is no tenant: add it, or correct the name");
    if (!parent->uid && !parent->gid) return {};
    return invalid(
        who + " names the parent '" + name + "', which is a " + (parent->uid ? "user" : "group") +
        " itself: processes belong to tenants that are no parents, so give it neither user nor group");
  }

  Result<void> check_circle(const TenantRule& rule) const {
    std::string way = "'" + rule.name + "'";
    const TenantRule* at = &rule;
    // A circle that `rule` only leads to is found from one of its members.
    for (std::size_t steps = 0; steps < policy_.tenants.size() && !at->parent.empty(); ++steps) {
      at = find(at->parent);
      way += " -> '" + at->name + "'";
      if (at == &rule) return invalid("the parents of tenants go in a circle: " + way + "; take one away");
    }
    return {};
  }

  Result<void> check_depth(const std::string& who, const std::string& parent) const {
    std::size_t depth = 1;
    for (const TenantRule* at = find(parent); at != nullptr; at = find(at->parent)) ++depth;
    if (depth <= kMaxTenantDepth) return {};
    return invalid(who + " is " + std::to_string(depth) + " levels deep, and no tenant may be deeper than " +
                   std::to_string(kMaxTenantDepth));
  }

  // As deep as the tree, which is checked.
  Result<Bytes> promised(const TenantRule& rule, DeviceIndex device) const {
    Bytes below;
    const auto members = members_.find(rule.name);
    for (const TenantRule* child : members == members_.end() ? Members{} : members->second) {
      auto of_child = promised(*child, device);
      if (!of_child) return of_child.error();
      const auto next = below.plus(*of_child);
      if (!next || *next > rule.quotas[device].limit)
        return over_parent(rule, *child, device, below, *of_child);
      below = *next;
    }
    return std::max(below, rule.quotas[device].guarantee);
  }

  // ` by 2GiB`: how far what all tenants directly below `parent` (empty: at the top) are promised is beyond
  // it.
  std::string by_how_much(const std::string& parent, DeviceIndex device, Bytes most) const {
    Bytes excess, left = most;
    for (const TenantRule& rule : policy_.tenants) {
      if (rule.parent != parent) continue;
      const auto of_rule = promised(rule, device);
      if (!of_rule) continue;  // a mistake of its own
      excess = excess.plus(of_rule->minus(left)).value_or(excess);
      left = left.minus(*of_rule);
    }
    return " by " + to_string(excess);
  }

  Error over_parent(const TenantRule& rule, const TenantRule& child, DeviceIndex device, Bytes sum,
                    Bytes of_child) const {
    return invalid("the guarantees below tenant '" + rule.name + "' on " + policy_.devices[device].uuid +
                   " exceed its limit of " + to_string(rule.quotas[device].limit) +
                   by_how_much(rule.name, device, rule.quotas[device].limit) + ": tenant '" + child.name +
                   "' asks for " + to_string(of_child) + " on top of " + to_string(sum) +
                   "; lower a guarantee or raise the limit of '" + rule.name + "'");
  }

  using Members = std::vector<const TenantRule*>;

  const Policy& policy_;
  std::map<std::string, const TenantRule*> by_name_;
  std::map<std::string, Members> members_;  ///< by the name of their parent
};

}  // namespace

Result<void> check(const Policy& policy) {
  if (auto ok = check_devices(policy); !ok) return ok.error();
  Tree tree(policy);
  if (auto ok = tree.check_shape(); !ok) return ok.error();
  for (const TenantRule& tenant : policy.tenants) {
    if (auto ok = check_quotas("tenant '" + tenant.name + "'", policy, tenant.quotas); !ok) return ok.error();
  }
  if (policy.others) {
    if (auto ok = check_quotas("the default", policy, *policy.others); !ok) return ok.error();
  }
  for (DeviceIndex i = 0; i < policy.devices.size(); ++i) {
    if (auto ok = tree.check_promises(i); !ok) return ok.error();
  }
  return {};
}

Bytes kept_for_contexts(const DevicePolicy& device, Bytes contexts) {
  const Bytes remainder = device.total.minus(device.pool);
  return std::min({remainder.minus(contexts), {remainder.count / 2}, {device.total.count / 20}});
}

Bytes usual_context(Bytes total, Bytes allowance) { return std::min(allowance, {total.count / 32}); }

Bytes kept_for_others(const DevicePolicy& device) {
  constexpr Bytes kForOthers{1ULL << 30};
  return device.is_elastic() ? std::min(kForOthers, Bytes{device.total.count / 8}) : Bytes{};
}

std::vector<std::string> uuids_of(const Policy& policy) {
  std::vector<std::string> uuids;
  uuids.reserve(policy.devices.size());
  for (const DevicePolicy& device : policy.devices) uuids.push_back(device.uuid);
  return uuids;
}

std::string name_of(const Policy& policy, DeviceIndex device) {
  return policy.devices[device].is_host() ? std::string(kHostStore) : device_name(device);
}

namespace {

// What a pod is told for which there is no tenant.
Error unprepared(const std::string& pod) {
  return {Code::kPermissionDenied,
          "nothing is prepared for pod " + pod +
              ", and this broker lends to no such pods: give the pod a ResourceClaim of this node's devices, "
              "or units of their memory, or have the administrator set unprepared = \"default\" in "
              "[kubernetes] of gpumemd.toml"};
}

Result<TenantMatch> tenant_of_pod(const Policy& policy, const std::string& pod) {
  if (const auto prepared = policy.pods.prepared.find(pod); prepared != policy.pods.prepared.end()) {
    const auto rule = std::ranges::find(policy.tenants, prepared->second, &TenantRule::name);
    if (rule != policy.tenants.end()) return TenantMatch{rule->name, rule->parent, rule->quotas};
  }
  if (!policy.pods.others || !policy.others) return unprepared(pod);
  return TenantMatch{kPodTenantPrefix + pod, policy.others_parent, *policy.others};
}

}  // namespace

Result<TenantMatch> tenant_of(const Policy& policy, const Peer& peer) {
  if (!peer.pod.empty()) return tenant_of_pod(policy, peer.pod);
  if (peer.pod_unknown && (policy.pods.expected || peer.contained)) {
    return Error{Code::kPermissionDenied,
                 "the kernel does not show the broker in which pod this process is; run gpumemd on the host, "
                 "or in a pod with hostPID: true, and with a /proc that is not mounted with hidepid"};
  }
  const auto match = [&](auto&& covers) -> const TenantRule* {
    const auto rule = std::find_if(policy.tenants.begin(), policy.tenants.end(), covers);
    return rule == policy.tenants.end() ? nullptr : &*rule;
  };
  const Owner charged = peer.owner.value_or(Owner{peer.uid, peer.gids});
  for (const std::uint32_t uid : {peer.uid, charged.uid}) {
    if (const auto* rule = match([&](const TenantRule& r) { return r.uid == uid; }))
      return TenantMatch{rule->name, rule->parent, rule->quotas};
  }
  for (const std::uint32_t gid : charged.gids) {
    if (const auto* rule = match([&](const TenantRule& r) { return r.gid == gid; }))
      return TenantMatch{rule->name, rule->parent, rule->quotas};
  }
  const std::string name = user_tenant(charged.uid);
  if (policy.others) return TenantMatch{name, policy.others_parent, *policy.others};
  return Error{Code::kPermissionDenied, name +
                                            " is no tenant of this broker and it takes no others; ask the "
                                            "administrator for a [[tenant]] or a [default]"};
}

bool has_guarantee(const Policy& policy, const TenantMatch& tenant) {
  const auto any = [](const std::vector<Quota>& quotas) {
    return std::ranges::any_of(quotas, [](const Quota& one) { return !one.guarantee.is_zero(); });
  };
  if (any(tenant.quotas)) return true;
  const auto above = std::ranges::find(policy.tenants, tenant.parent, &TenantRule::name);
  return !tenant.parent.empty() && above != policy.tenants.end() &&
         has_guarantee(policy, {above->name, above->parent, above->quotas});
}

TenantMatch tenant_of_session(const Policy& policy, const Peer& peer, const std::string& now) {
  const bool is_unprepared = !peer.pod.empty() && !policy.pods.prepared.contains(peer.pod);
  const bool was_prepared = is_unprepared && now != kPodTenantPrefix + peer.pod;
  auto match = tenant_of(policy, peer);
  if (match && !was_prepared) return std::move(*match);
  const auto is_anothers = [&](const TenantRule& rule) { return rule.name == now && (rule.uid || rule.gid); };
  const auto user = peer.user();
  const bool has_lost_its_name = user && std::ranges::any_of(policy.tenants, is_anothers);
  return {has_lost_its_name ? user_tenant(*user) : now, {}, std::vector<Quota>(policy.devices.size())};
}

}  // namespace gpumem::core
