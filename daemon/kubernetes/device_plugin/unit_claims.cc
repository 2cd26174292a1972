#include "daemon/kubernetes/device_plugin/unit_claims.h"

#include <algorithm>

#include "base/log.h"

namespace gpumem::kubernetes {
namespace {

constexpr int kLooks = 3;  // for a pod in the checkpoint

bool have_one_in_common(const UnitSet& one, const UnitSet& other) {
  return std::any_of(one.begin(), one.end(), [&](const std::string& id) { return other.count(id) != 0; });
}

// The kubelet lists a pod without its init containers, whose units its other containers take over.
Result<const ListedPod*> listed_with(const UnitSet& units, const std::vector<ListedPod>& pods) {
  const ListedPod* found = nullptr;
  for (const ListedPod& pod : pods) {
    if (!have_one_in_common(units, pod.units)) continue;
    if (found != nullptr)
      return Error{Code::kInternal, "the kubelet lists its units for the pods " + found->space + "/" +
                                        found->name + " and " + pod.space + "/" + pod.name +
                                        "; restart the kubelet"};
    found = &pod;
  }
  return found;
}

bool is_all_in(const std::vector<ListedPod>& pods, const HeldUnits& held) {
  UnitSet known;
  for (const auto& [uid, units] : held) known.insert(units.begin(), units.end());
  return std::all_of(pods.begin(), pods.end(), [&](const ListedPod& pod) {
    return std::includes(known.begin(), known.end(), pod.units.begin(), pod.units.end());
  });
}

bool is_known(const KubeletRecord& record, const std::string& uid) {
  return record.held.count(uid) != 0 || record.of_other_size.count(uid) != 0;
}

std::string words_for(const v1::Claim& claim) {
  return "pod " + claim.namespace_() + "/" + claim.name() + " (" + claim.uid() + ")";
}

}  // namespace

Result<UnitClaims::Claims> UnitClaims::claims() {
  auto listed = broker_.claims();
  if (!listed) return listed.error();
  Claims claims;
  for (v1::Claim& one : *listed) claims.insert_or_assign(one.uid(), std::move(one));
  return claims;
}

Result<v1::Claim> UnitClaims::claim_for(const std::string& uid, const UnitSet& units,
                                        const std::vector<ListedPod>& pods, const Claims& there) const {
  auto amounts = units_by_device(units);
  if (!amounts) return amounts.error().in("the kubelet's checkpoint, pod " + uid);
  auto listed = listed_with(units, pods);
  if (!listed) return listed.error().in("pod " + uid);
  const auto known = there.find(uid);
  if (*listed == nullptr && known == there.end())
    return Error{Code::kFailedPrecondition,
                 "the kubelet does not say what the pod " + uid +
                     " is called: it lists no units of it. If only its init containers ask for memory, have "
                     "another container of the pod ask, too"};
  v1::Claim claim = *listed != nullptr ? claim_message(uid, (*listed)->space, (*listed)->name)
                                       : claim_message(uid, known->second.namespace_(), known->second.name());
  add_pod(claim, uid, claim.name());
  for (const auto& [uuid, count] : *amounts)
    add_amount(claim, uuid, {count * unit_.count}, {count * unit_.count});
  return claim;
}

// Before others are prepared: the kubelet may have given them the units.
void UnitClaims::remove_gone(const KubeletRecord& record, const std::vector<ListedPod>& pods,
                             const Claims& there, Outcome& outcome) {
  if (!is_all_in(pods, record.held)) {
    outcome.rest =
        Error{Code::kUnavailable,
              "the kubelet lists units that its checkpoint lacks; claims of pods that have gone stay "
              "until it has them"};
    return;
  }
  for (const auto& [uid, claim] : there) {
    if (is_known(record, uid)) continue;
    auto removed = broker_.unprepare(uid);
    if (removed)
      spdlog::info("{} has no units any more, and its claim is removed", words_for(claim));
    else if (outcome.rest)
      outcome.rest = removed.error().in(words_for(claim));
  }
}

UnitClaims::Outcome UnitClaims::apply(const KubeletRecord& record, const std::vector<ListedPod>& pods,
                                      const Claims& there) {
  Outcome outcome;
  remove_gone(record, pods, there, outcome);
  for (const auto& [uid, units] : record.held) {
    auto claim = claim_for(uid, units, pods, there);
    if (!claim) {
      outcome.failed.emplace(uid, claim.error());
      continue;
    }
    const auto known = there.find(uid);
    if (known != there.end() && are_equal(known->second, *claim)) continue;
    auto prepared = broker_.prepare(*claim);
    if (prepared)
      spdlog::info("{} has {} units", words_for(*claim), units.size());
    else
      outcome.failed.emplace(uid, prepared.error().in(words_for(*claim)));
  }
  return outcome;
}

// An older checkpoint may be written over a newer one: the kubelet makes it and writes it in two steps. So it
// is asked for again where it lacks the units.
Result<std::string> UnitClaims::owner_of(const UnitSet& units, KubeletRecord& record) {
  for (int look = 0; look < kLooks; ++look) {
    auto fresh = kubelet_.fresh();
    if (!fresh) return fresh.error();
    record = std::move(*fresh);
    for (const auto& [uid, its] : record.held)
      if (std::includes(its.begin(), its.end(), units.begin(), units.end())) return uid;
  }
  return Error{Code::kFailedPrecondition, "the kubelet's checkpoint does not say which pod has " +
                                              *units.begin() + " and what else the container is to get; " +
                                              "if this goes on, delete the pod"};
}

Result<void> UnitClaims::prepare(const UnitSet& units) {
  if (units.empty()) return Error{Code::kInvalidArgument, "the container is to get no units"};
  const MutexLock lock(mutex_);
  KubeletRecord record;
  auto uid = owner_of(units, record);
  if (!uid) return uid.error();
  auto pods = kubelet_.pods();
  if (!pods) return pods.error();
  auto there = claims();
  if (!there) return there.error();
  const Outcome outcome = apply(record, *pods, *there);
  if (const auto failed = outcome.failed.find(*uid); failed != outcome.failed.end()) return failed->second;
  return {};
}

Result<void> UnitClaims::reconcile() {
  const MutexLock lock(mutex_);
  auto pods = kubelet_.pods();
  if (!pods) return pods.error();
  auto there = claims();
  if (!there) return there.error();
  if (auto last = kubelet_.last(); last && is_in_force(*last, *pods, *there)) return {};
  auto record = kubelet_.fresh();
  if (!record) return record.error();
  pods = kubelet_.pods();
  if (!pods) return pods.error();
  const Outcome outcome = apply(*record, *pods, *there);
  if (!outcome.rest) return outcome.rest;
  return outcome.failed.empty() ? Result<void>() : Result<void>(outcome.failed.begin()->second);
}

// So that the kubelet does not write its checkpoint for nothing. A pod that it lists no more may have ended,
// and so may one with units of another size: those are looked for in the checkpoint alone.
bool UnitClaims::is_in_force(const KubeletRecord& record, const std::vector<ListedPod>& pods,
                             const Claims& there) const {
  if (!is_all_in(pods, record.held)) return false;
  for (const auto& [uid, claim] : there)
    if (record.held.count(uid) == 0) return false;
  for (const auto& [uid, units] : record.held) {
    const auto listed = listed_with(units, pods);
    const auto claim = claim_for(uid, units, pods, there);
    const auto known = there.find(uid);
    if (!listed || *listed == nullptr || !claim || known == there.end() || !are_equal(known->second, *claim))
      return false;
  }
  return true;
}

}  // namespace gpumem::kubernetes
