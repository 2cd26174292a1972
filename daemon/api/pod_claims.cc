#include "daemon/api/pod_claims.h"

#include <utility>

#include "base/printable.h"
#include "daemon/pods/prepared_claims.h"

namespace gpumem::api {
namespace {

constexpr std::size_t kMostPods = 1024, kMostAmounts = 256, kLongestUid = 64;

Error bad_claim(const core::PodClaim& claim, const std::string& what) {
  return {Code::kInvalidArgument,
          to_printable("claim " + claim.space + "/" + claim.name + " (" + claim.uid + "): " + what)};
}

Result<void> check_names(const core::PodClaim& claim) {
  if (claim.uid.empty() || claim.uid.size() > kLongestUid || !is_printable(claim.uid))
    return bad_claim(claim, "its uid is none");
  if (!pods::is_namespace(claim.space)) return bad_claim(claim, "its namespace is none");
  if (!pods::is_object_name(claim.name)) return bad_claim(claim, "its name is none");
  return {};
}

Result<void> check_pods(const core::PodClaim& claim) {
  if (claim.pods.empty()) return bad_claim(claim, "it has no pods: name those that may use it");
  if (claim.pods.size() > kMostPods)
    return bad_claim(claim, "it has more than " + std::to_string(kMostPods) + " pods");
  for (const core::Pod& pod : claim.pods) {
    if (!pods::is_pod_uid(pod.uid))
      return bad_claim(claim, "'" + pod.uid + "' is no uid of a pod, as cgroups have it");
    if (!pods::is_object_name(pod.name)) return bad_claim(claim, "pod " + pod.uid + " has no name");
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

}  // namespace

Error no_administrator(const core::Caller& caller) {
  const std::string pod = caller.peer.contained ? " in pod " + caller.peer.pod +
                                                      ", which does not share the machine's PIDs (hostPID),"
                                                : "";
  return {Code::kPermissionDenied, "user " + std::to_string(caller.peer.uid) + pod +
                                       " may not administer this broker: root may, and the members of the "
                                       "group that is configured as admin_group (gpumemd.toml(5))"};
}

void prepare_claim(core::PodClaimAdmin& claims, const core::Caller& caller, core::PodClaim claim,
                   ClaimAnswer answer) {
  if (!caller.admin) return answer(no_administrator(caller));
  if (auto ok = check(claim); !ok) return answer(ok);
  claims.prepare(std::move(claim), caller, std::move(answer));
}

void unprepare_claim(core::PodClaimAdmin& claims, const core::Caller& caller, std::string uid,
                     ClaimAnswer answer) {
  if (!caller.admin) return answer(no_administrator(caller));
  if (uid.empty()) return answer(Error{Code::kInvalidArgument, "no claim is named: its uid is empty"});
  claims.unprepare(std::move(uid), caller, std::move(answer));
}

void list_claims(core::PodClaimAdmin& claims, const core::Caller& caller,
                 std::function<void(Result<std::vector<core::PodClaim>>)> answer) {
  if (!caller.admin) return answer(no_administrator(caller));
  claims.list_claims(std::move(answer));
}

}  // namespace gpumem::api
