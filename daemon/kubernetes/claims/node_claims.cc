#include "daemon/kubernetes/claims/node_claims.h"

#include <algorithm>

#include "base/crash_point.h"
#include "base/log.h"
#include "daemon/kubernetes/http/api_values.h"

namespace gpumem::kubernetes {
namespace {

// The UID becomes the name of a file.
bool is_uid(const std::string& uid) {
  return !uid.empty() && uid.size() <= 64 && std::all_of(uid.begin(), uid.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-';
  });
}

std::string words_for(const ClaimReference& claim) { return "ResourceClaim " + claim.text(); }

v1::Claim to_message(const PreparedClaim& claim) {
  v1::Claim message = claim_message(claim.claim.uid, claim.claim.space, claim.claim.name);
  for (const PodReference& pod : claim.pods) add_pod(message, pod.uid, pod.name);
  for (const PreparedShare& share : claim.shares)
    add_amount(message, share.uuid, share.share.guarantee, share.share.limit);
  return message;
}

Result<std::string> uuid_of(const Share& share, const std::vector<Device>& devices) {
  for (const Device& device : devices) {
    if (device.name != share.device) continue;
    if (share.guarantee <= device.pool) return device.uuid;
    return Error{Code::kFailedPrecondition, "it is given " + quantity_text(share.guarantee) + " of " +
                                                share.device + ", of which the broker lends " +
                                                quantity_text(device.pool) +
                                                "; delete the pod to have it scheduled anew"};
  }
  return Error{Code::kNotFound, "the broker of this node does not lend " + share.device +
                                    "; it may have failed: delete the pod to have it scheduled anew"};
}

bool is_away(const Error& error) { return error.code == Code::kUnavailable; }

void keep_first(Result<void>& first, Result<void> next) {
  if (first) first = std::move(next);
}

}  // namespace

Result<PreparedClaims> NodeClaims::load() {
  auto claims = checkpoint_.load();
  if (claims) return claims;
  if (claims.error().code == Code::kInvalidArgument) {
    auto aside = checkpoint_.put_aside();
    if (!aside) return aside.error();
    spdlog::error("{}; it is kept as {}, and what is prepared is learnt anew", claims.error().message,
                  aside->string());
  } else if (claims.error().code != Code::kNotFound) {
    return claims;
  }
  PreparedClaims kept;
  for (const std::string& uid : specs_.list()) kept[uid].claim.uid = uid;
  if (auto saved = checkpoint_.save(kept); !saved) return saved.error();
  return kept;
}

Result<NodeClaims::Held> NodeClaims::hold() {
  auto lock = StateLock::take(options_.folder);
  if (!lock) return lock.error();
  auto claims = load();
  if (!claims) return claims.error();
  return Held{std::move(*lock), std::move(*claims)};
}

Result<void> NodeClaims::recover() {
  auto held = hold();
  if (!held) return held.error();
  for (const std::string& uid : specs_.list()) {
    if (held->claims.count(uid) != 0) continue;
    spdlog::warn("the device specification of claim {} belongs to nothing that is prepared, and is removed",
                 uid);
    if (auto removed = specs_.remove(uid); !removed) return removed.error();
  }
  return {};
}

Result<Json> NodeClaims::fetch(const ClaimReference& claim, Retry retry) const {
  return server_.get("/apis/resource.k8s.io/v1/namespaces/" + escaped(claim.space) + "/resourceclaims/" +
                         escaped(claim.name),
                     retry);
}

Result<PreparedClaim> NodeClaims::resolve(const ClaimReference& claim, const Json& object) {
  auto allocation = read_claim(object, claim, options_.driver);
  if (!allocation) return allocation.error();
  auto devices = broker_.devices();
  if (!devices) return devices.error();
  PreparedClaim prepared{.claim = claim,
                         .standalone = allocation->standalone,
                         .pods = std::move(allocation->pods),
                         .shares = {}};
  for (Share& share : allocation->shares) {
    if (share.pool != options_.node)
      return Error{Code::kFailedPrecondition, "it is given " + share.device + " of pool " + share.pool +
                                                  ", which is not this node's (" + options_.node + ")"};
    auto uuid = uuid_of(share, *devices);
    if (!uuid) return uuid.error().in("request " + share.request);
    prepared.shares.push_back({std::move(share), std::move(*uuid)});
  }
  return prepared;
}

// Whether its Prepare has noted it, and no more.
bool NodeClaims::is_noted_only(const PreparedClaim& one) const {
  const std::vector<std::string> found = specs_.list();
  return one.shares.empty() && std::find(found.begin(), found.end(), one.claim.uid) == found.end();
}

Result<PreparedClaim> NodeClaims::apply(Held& held, PreparedClaim claim) {
  const std::string uid = claim.claim.uid;
  PreparedClaims before = held.claims;
  const bool is_new = is_noted_only(before.at(uid));
  if (is_new) before.erase(uid);
  held.claims.insert_or_assign(uid, claim);
  if (auto saved = checkpoint_.save(held.claims); !saved) return saved.error();
  crash_at(CrashPoint::kDraSaved);
  if (auto prepared = broker_.prepare(to_message(claim)); !prepared) {
    // What the broker has refused has changed nothing. A call without an answer may have.
    if (!is_away(prepared.error())) {
      if (auto undone = checkpoint_.save(before); !undone) return undone.error();
    }
    return prepared.error();
  }
  crash_at(CrashPoint::kDraInForce);
  if (auto written = specs_.write(uid); !written) {
    // No pod has it yet. If the undo fails, the claim stays in the checkpoint, for Unprepare.
    if (is_new && specs_.remove(uid) && broker_.unprepare(uid)) {
      if (auto undone = checkpoint_.save(before); !undone) spdlog::error("{}", undone.error().message);
    }
    return written.error();
  }
  crash_at(CrashPoint::kDraPrepared);
  return claim;
}

Result<PreparedClaim> NodeClaims::note(const ClaimReference& claim) {
  auto held = hold();
  if (!held) return held.error();
  const auto [known, is_new] = held->claims.try_emplace(claim.uid);
  if (is_new) {
    known->second.claim = claim;
    if (auto saved = checkpoint_.save(held->claims); !saved) return saved.error();
  }
  return known->second;
}

Result<void> NodeClaims::drop_note(const std::string& uid) {
  auto held = hold();
  if (!held) return held.error();
  const auto noted = held->claims.find(uid);
  if (noted == held->claims.end() || !is_noted_only(noted->second)) return {};
  held->claims.erase(noted);
  return checkpoint_.save(held->claims);
}

Result<PreparedClaim> NodeClaims::look_up(const PreparedClaim& known, const ClaimReference& claim) {
  const bool is_prepared = !known.shares.empty();
  auto object = fetch(claim, is_prepared ? Retry::kNot : Retry::kThrice);
  if (object) return resolve(claim, *object);
  if (!is_prepared || !is_away(object.error())) return object.error();
  spdlog::warn("{} is prepared as it was before: {}", words_for(claim), object.error().message);
  return known;
}

Result<PreparedClaim> NodeClaims::apply_if_wanted(PreparedClaim claim, const IsCancelled& is_cancelled) {
  auto held = hold();
  if (!held) return held.error();
  if (is_cancelled()) return Error{Code::kCancelled, "the call was given up"};
  if (held->claims.count(claim.claim.uid) == 0)
    return Error{Code::kAborted, "it was unprepared while it was being prepared"};
  return apply(*held, std::move(claim));
}

Result<PreparedClaim> NodeClaims::prepare(const ClaimReference& claim, const IsCancelled& is_cancelled) {
  if (!is_uid(claim.uid))
    return Error{Code::kInvalidArgument, words_for(claim) + ": \"" + claim.uid + "\" is no UID"};
  auto known = note(claim);
  if (!known) return known.error().in(words_for(claim));
  crash_at(CrashPoint::kDraNoted);
  auto fresh = look_up(*known, claim);
  crash_at(CrashPoint::kDraLookedUp);
  if (!fresh) {
    // The note of a call that was given up may be its successor's by now: Unprepare takes it away.
    if (auto dropped = is_cancelled() ? Result<void>() : drop_note(claim.uid); !dropped)
      spdlog::error("{}: {}", words_for(claim), dropped.error().message);
    return fresh.error().in(words_for(claim));
  }
  auto applied = apply_if_wanted(std::move(*fresh), is_cancelled);
  if (!applied) return applied.error().in(words_for(claim));
  spdlog::info("{} ({}) is prepared for {} pods", words_for(claim), claim.uid, applied->pods.size());
  return applied;
}

Result<void> NodeClaims::unprepare(const ClaimReference& claim) {
  if (!is_uid(claim.uid))
    return Error{Code::kInvalidArgument, words_for(claim) + ": \"" + claim.uid + "\" is no UID"};
  auto held = hold();
  if (!held) return held.error().in(words_for(claim));
  if (auto removed = specs_.remove(claim.uid); !removed) return removed.error().in(words_for(claim));
  crash_at(CrashPoint::kDraUnspecified);
  if (auto gone = broker_.unprepare(claim.uid); !gone) return gone.error().in(words_for(claim));
  crash_at(CrashPoint::kDraWithdrawn);
  if (held->claims.erase(claim.uid) != 0) {
    if (auto saved = checkpoint_.save(held->claims); !saved) return saved.error().in(words_for(claim));
    crash_at(CrashPoint::kDraUnprepared);
    spdlog::info("{} ({}) is unprepared", words_for(claim), claim.uid);
  }
  return {};
}

Result<void> NodeClaims::refresh_broker() {
  auto held = hold();
  if (!held) return held.error();
  auto there = broker_.claims();
  if (!there) return there.error();
  Result<void> first;
  std::map<std::string, const v1::Claim*> known;
  for (const v1::Claim& one : *there) {
    known.emplace(one.uid(), &one);
    if (held->claims.count(one.uid()) != 0) continue;
    spdlog::warn("the broker has claim {}/{} ({}), which is not prepared: it is taken away", one.namespace_(),
                 one.name(), one.uid());
    keep_first(first, broker_.unprepare(one.uid()));
  }
  for (const auto& [uid, one] : held->claims) {
    const v1::Claim claim = to_message(one);
    const auto found = known.find(uid);
    if (one.shares.empty() || (found != known.end() && are_equal(*found->second, claim))) continue;
    spdlog::warn("the broker has {} {} ({}): it is prepared again", found == known.end() ? "lost" : "another",
                 words_for(one.claim), uid);
    auto prepared = broker_.prepare(claim);
    keep_first(first, prepared ? Result<void>() : Result<void>(prepared.error().in(words_for(one.claim))));
  }
  return first;
}

Result<std::set<std::string>> NodeClaims::devices() {
  auto held = hold();
  if (!held) return held.error();
  std::set<std::string> names;
  for (const auto& [uid, one] : held->claims)
    for (const PreparedShare& share : one.shares) names.insert(share.share.device);
  return names;
}

Result<void> NodeClaims::refresh_pods_of(const PreparedClaim& claim) {
  auto object = fetch(claim.claim, Retry::kNot);
  // A missing claim is not an error here: the kubelet calls Unprepare for it.
  if (!object)
    return object.error().code == Code::kNotFound ? Result<void>()
                                                  : object.error().in(words_for(claim.claim));
  auto allocation = read_claim(*object, claim.claim, options_.driver);
  if (!allocation || allocation->pods == claim.pods) return {};
  auto held = hold();
  if (!held) return held.error();
  const auto found = held->claims.find(claim.claim.uid);
  if (found == held->claims.end()) return {};  // unprepared meanwhile
  PreparedClaim fresh = found->second;
  fresh.pods = std::move(allocation->pods);
  auto applied = apply(*held, std::move(fresh));
  return applied ? Result<void>() : Result<void>(applied.error().in(words_for(claim.claim)));
}

Result<void> NodeClaims::refresh_pods() {
  Result<void> first;
  PreparedClaims claims;
  {
    auto held = hold();
    if (!held) return held.error();
    claims = std::move(held->claims);
  }
  for (const auto& [uid, one] : claims) {
    if (!one.standalone || one.shares.empty()) continue;
    auto refreshed = refresh_pods_of(one);
    const bool has_no_answer = !refreshed && is_away(refreshed.error());
    keep_first(first, std::move(refreshed));
    if (has_no_answer) break;  // else each further claim would wait for the server again
  }
  return first;
}

}  // namespace gpumem::kubernetes
