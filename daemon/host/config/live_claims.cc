// Claims that are prepared for pods, as part of the quotas in force.
#include <algorithm>
#include <boost/asio/post.hpp>
#include <set>
#include <utility>

#include "base/log.h"
#include "daemon/host/config/live_quotas.h"
#include "daemon/host/config/policy_compiler.h"

namespace gpumem::host {
namespace {

std::string in_words(const core::PodClaim& claim) { return "claim " + claim.space + "/" + claim.name; }

std::string amounts_in_words(const core::PodClaim& claim) {
  std::string words;
  for (const core::ClaimAmount& amount : claim.amounts) {
    words += (words.empty() ? "" : ", ") + to_string(amount.guarantee) + " guaranteed and at most " +
             to_string(amount.limit) + " on " + amount.device;
  }
  return words;
}

// Each amount can be had by itself: what is wrong is what there is already.
Error as_precondition(const Error& error) {
  return {error.code == Code::kInvalidArgument ? Code::kFailedPrecondition : error.code, error.message};
}

// Tenants of pods for which nothing is prepared any more, whose processes are still here.
std::set<std::string> leftovers(const std::vector<core::TenantView>& tenants,
                                const pods::PreparedClaims& claims) {
  std::set<std::string> names;
  for (const core::TenantView& tenant : tenants) names.insert(tenant.name);
  for (const auto& [pod, name] : claims.tenants) names.erase(name);
  return names;
}

}  // namespace

void LiveQuotas::prepare(core::PodClaim claim, core::Caller caller,
                         std::function<void(Result<void>)> answer) {
  boost::asio::post(worker_, [this, claim = std::move(claim), caller = std::move(caller),
                              answer = std::move(answer)] { answer(prepare_now(claim, caller)); });
}

void LiveQuotas::unprepare(std::string uid, core::Caller caller, std::function<void(Result<void>)> answer) {
  boost::asio::post(worker_, [this, uid = std::move(uid), caller = std::move(caller),
                              answer = std::move(answer)] { answer(unprepare_now(uid, caller)); });
}

void LiveQuotas::list_claims(std::function<void(Result<std::vector<core::PodClaim>>)> answer) {
  boost::asio::post(worker_, [this, answer = std::move(answer)] { answer(claims_now()); });
}

std::vector<core::PodClaim> LiveQuotas::claims_now() {
  const MutexLock lock(mutex_);
  std::vector<core::PodClaim> claims;
  for (const auto& [uid, claim] : claims_.current().by_uid) claims.push_back(claim);
  return claims;
}

namespace {

// Kubernetes has a pod in one namespace, whose limit its amounts count against.
Result<void> check_namespace(const core::PodClaim& claim, const pods::PreparedClaims& claims) {
  for (const auto& [uid, other] : claims.by_uid) {
    if (uid == claim.uid || other.space == claim.space) continue;
    for (const core::Pod& pod : claim.pods) {
      if (std::ranges::find(other.pods, pod.uid, &core::Pod::uid) != other.pods.end())
        return Error{Code::kFailedPrecondition, in_words(claim) + ": pod " + pod.uid + " is in namespace '" +
                                                    other.space + "' by " + in_words(other) +
                                                    ", which has to be taken away first"};
    }
  }
  return {};
}

}  // namespace

Result<void> LiveQuotas::prepare_now(const core::PodClaim& claim, const core::Caller& caller) {
  if (auto right = pods::check(claim); !right) return right;
  const MutexLock lock(mutex_);
  if (!config_.kubernetes.look_for_pods)
    return Error{Code::kFailedPrecondition,
                 in_words(claim) +
                     " would be nobody's: with look_for_pods = false in [kubernetes] this broker "
                     "takes the processes of pods for users"};
  const pods::PreparedClaims& current = claims_.current();
  const auto known = current.by_uid.find(claim.uid);
  if (known != current.by_uid.end() && known->second == claim) return {};
  if (auto one = check_namespace(claim, current); !one) return one.error();
  auto in_force = compile_policy(config_, devices_, store_.current(), current);
  if (!in_force) return as_precondition(in_force.error());
  if (auto lent = check_amounts(claim, in_force->policy); !lent) return lent.error();
  const std::set<std::string> taken = leftovers(core_.tenants(), current);
  const auto is_taken = [&](const std::string& name) { return taken.contains(name); };
  const std::string cause = in_words(claim) + " is prepared for " + std::to_string(claim.pods.size()) +
                            (claim.pods.size() == 1 ? " pod: " : " pods: ") + amounts_in_words(claim) +
                            " (by uid " + std::to_string(caller.peer.uid) + ")";
  return put_in_force(with_claim(current, claim, is_taken), cause);
}

Result<void> LiveQuotas::unprepare_now(const std::string& uid, const core::Caller& caller) {
  if (uid.empty()) return Error{Code::kInvalidArgument, "no claim is named: its uid is empty"};
  const MutexLock lock(mutex_);
  const pods::PreparedClaims& current = claims_.current();
  const auto known = current.by_uid.find(uid);
  if (known == current.by_uid.end()) return {};
  const std::string cause =
      in_words(known->second) + " is taken away (by uid " + std::to_string(caller.peer.uid) + ")";
  return put_in_force(without_claim(current, uid), cause);
}

// As with quotas: on the disk first, then in the core, then the disk's old file goes.
Result<void> LiveQuotas::put_in_force(pods::PreparedClaims next, const std::string& cause) {
  auto before = compile_policy(config_, devices_, store_.current(), claims_.current());
  if (!before) return as_precondition(before.error());
  auto after = compile_policy(config_, devices_, store_.current(), next);
  if (!after) return as_precondition(after.error());
  if (auto prepared = claims_.prepare(std::move(next)); !prepared) {
    claims_.discard();
    return prepared.error();
  }
  if (auto applied = core_.apply(std::move(after->policy), cause); !applied) {
    claims_.discard();
    return as_precondition(applied.error());
  }
  auto committed = claims_.commit();
  if (committed) {
    spdlog::info("{}", cause);
    return {};
  }
  claims_.discard();
  if (auto back = core_.apply(std::move(before->policy), "the claim could not be stored"); !back)
    spdlog::error("a claim that is not stored stays in force until the next reload: {}",
                  back.error().message);
  return committed.error();
}

}  // namespace gpumem::host
