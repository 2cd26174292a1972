#include "daemon/pods/prepared_claims.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "base/text/printable.h"
#include "daemon/pods/pod.h"

namespace gpumem::pods {
namespace {

const std::string kPod = core::kPodTenantPrefix, kClaim = "claim ";

// The characters of Kubernetes names. The separators in a tenant's name are not among them.
bool is_dns(const std::string& name, std::string_view besides) {
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || besides.find(c) != besides.npos;
  });
}

// Names of pods may have 253 bytes. What is cut off is told apart by the UID.
std::string unique_name(const std::string& plain, const std::string& uid,
                        const std::function<bool(const std::string&)>& is_used) {
  if (plain.size() <= kLongestName && !is_used(plain)) return plain;
  const std::string suffix = " (" + uid + ")";
  return plain.substr(0, kLongestName - std::min(kLongestName, suffix.size())) + suffix;
}

Bytes sum(Bytes one, Bytes other) {
  return one.plus(other).value_or(Bytes{std::numeric_limits<std::uint64_t>::max()});
}

void add(core::ClaimAmount more, std::vector<core::ClaimAmount>& to) {
  const auto same = std::ranges::find(to, more.device, &core::ClaimAmount::device);
  if (same == to.end()) return to.push_back(std::move(more));
  same->guarantee = sum(same->guarantee, more.guarantee);
  same->limit = sum(same->limit, more.limit);
}

void drop_pods_without_claim(PreparedClaims& claims) {
  std::set<std::string> kept;
  for (const auto& [uid, claim] : claims.by_uid)
    for (const core::Pod& pod : claim.pods) kept.insert(pod.uid);
  std::erase_if(claims.tenants, [&](const auto& entry) { return !kept.contains(entry.first); });
}

// The pods that are to be one tenant, and what they are called so far.
struct Group {
  std::set<std::string> pods;
  std::set<std::string> names;
};

Group group_of(const core::PodClaim& claim, const std::map<std::string, std::string>& tenants) {
  Group group;
  for (const core::Pod& pod : claim.pods) {
    group.pods.insert(pod.uid);
    if (const auto known = tenants.find(pod.uid); known != tenants.end()) group.names.insert(known->second);
  }
  for (const auto& [pod, name] : tenants)
    if (group.names.contains(name)) group.pods.insert(pod);
  return group;
}

std::string name_of(const Group& group, const core::PodClaim& claim,
                    const std::function<bool(const std::string&)>& is_used) {
  const auto shared =
      std::ranges::find_if(group.names, [](const std::string& name) { return name.starts_with(kClaim); });
  if (shared != group.names.end()) return *shared;
  if (group.pods.size() > 1) return unique_name(kClaim + claim.space + "/" + claim.name, claim.uid, is_used);
  if (!group.names.empty()) return *group.names.begin();
  const core::Pod& pod = claim.pods.front();
  return unique_name(kPod + pod.space + "/" + pod.name, pod.uid, is_used);
}

}  // namespace

PreparedClaims with_claim(PreparedClaims claims, core::PodClaim claim, const IsTaken& is_taken) {
  // Pods that the claim has no more may have had no other.
  PreparedClaims next = std::move(claims);
  next.by_uid.insert_or_assign(claim.uid, claim);
  drop_pods_without_claim(next);
  const Group group = group_of(claim, next.tenants);
  const std::string name = name_of(group, claim, [&](const std::string& plain) {
    return is_taken(plain) ||
           std::ranges::any_of(next.tenants, [&](const auto& entry) { return entry.second == plain; });
  });
  for (const std::string& pod : group.pods) next.tenants[pod] = name;
  return next;
}

PreparedClaims without_claim(PreparedClaims claims, const std::string& uid) {
  claims.by_uid.erase(uid);
  drop_pods_without_claim(claims);
  return claims;
}

std::vector<PreparedTenant> tenants_of(const PreparedClaims& claims) {
  std::map<std::string, PreparedTenant> tenants;
  for (const auto& [uid, claim] : claims.by_uid) {
    const std::string& name = claims.tenants.at(claim.pods.front().uid);
    PreparedTenant& tenant = tenants.try_emplace(name, PreparedTenant{name, claim.space, {}}).first->second;
    for (const core::ClaimAmount& amount : claim.amounts) add(amount, tenant.amounts);
  }
  std::vector<PreparedTenant> all;
  all.reserve(tenants.size());
  for (auto& [name, tenant] : tenants) all.push_back(std::move(tenant));
  return all;
}

bool is_pods_name(const std::string& tenant) {
  return tenant.starts_with(kPod) || tenant.starts_with(kClaim);
}

bool is_namespace(const std::string& name) { return name.size() <= 63 && is_dns(name, ""); }

bool is_object_name(const std::string& name) { return name.size() <= 253 && is_dns(name, "."); }

bool is_pod_uid(const std::string& uid) {
  const auto container = container_of("0::/kubepods/pod" + uid);
  return container && container->pod == uid;
}

namespace {

constexpr std::size_t kMostPods = 1024, kMostAmounts = 256, kLongestUid = 64;

Error bad_claim(const core::PodClaim& claim, const std::string& what) {
  return {Code::kInvalidArgument,
          to_printable("claim " + claim.space + "/" + claim.name + " (" + claim.uid + "): " + what)};
}

Result<void> check_names(const core::PodClaim& claim) {
  if (claim.uid.empty() || claim.uid.size() > kLongestUid || !is_printable(claim.uid))
    return bad_claim(claim, "its uid is none");
  if (!is_namespace(claim.space)) return bad_claim(claim, "its namespace is none");
  if (!is_object_name(claim.name)) return bad_claim(claim, "its name is none");
  return {};
}

Result<void> check_pods(const core::PodClaim& claim) {
  if (claim.pods.empty()) return bad_claim(claim, "it has no pods: name those that may use it");
  if (claim.pods.size() > kMostPods)
    return bad_claim(claim, "it has more than " + std::to_string(kMostPods) + " pods");
  for (const core::Pod& pod : claim.pods) {
    if (!is_pod_uid(pod.uid))
      return bad_claim(claim, "'" + pod.uid + "' is no uid of a pod, as cgroups have it");
    if (!is_object_name(pod.name)) return bad_claim(claim, "pod " + pod.uid + " has no name");
    if (pod.space != claim.space)
      return bad_claim(claim, "pod " + pod.uid + " is of namespace '" + pod.space +
                                  "': a claim and its pods are of one namespace");
  }
  return {};
}

Result<void> check_amount(const core::PodClaim& claim, const core::ClaimAmount& amount) {
  const std::string where = " on " + amount.device;
  if (amount.limit.is_zero()) return bad_claim(claim, "a limit of 0" + where + " lends nothing");
  if (amount.guarantee > amount.limit) {
    return bad_claim(claim, "its guarantee of " + to_string(amount.guarantee) + where +
                                " is more than its limit of " + to_string(amount.limit));
  }
  return {};
}

}  // namespace

Result<void> check(const core::PodClaim& claim) {
  if (auto ok = check_names(claim); !ok) return ok;
  if (auto ok = check_pods(claim); !ok) return ok;
  if (claim.amounts.empty()) return bad_claim(claim, "it asks for no device's memory");
  if (claim.amounts.size() > kMostAmounts)
    return bad_claim(claim, "it has more than " + std::to_string(kMostAmounts) + " amounts");
  for (const core::ClaimAmount& amount : claim.amounts)
    if (auto ok = check_amount(claim, amount); !ok) return ok;
  return {};
}

}  // namespace gpumem::pods
