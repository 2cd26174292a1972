#include <algorithm>
#include <tuple>

#include "daemon/core/lending.h"

// Kept regions outlive the processes that have their memory. A region that no process has any more is charged
// to a detached session of the same tenant, which has no process.

namespace gpumem::core {
namespace {

// As a detached session is shown where processes are.
constexpr const char* kDetachedCommand = "(kept regions)";

// The detached session belongs to the holder's tenant, under any later policy, too.
Peer peer_of_detached(const Session& holder) {
  Peer peer = holder.peer;
  peer.pid = 0;
  peer.started = 0;
  peer.maps = false;
  peer.command = kDetachedCommand;
  return peer;
}

bool is_used(const Imports::Shared* shared) {
  return shared != nullptr &&
         std::ranges::any_of(shared->users, [](const auto& user) { return user.second != 0; });
}

}  // namespace

// Its record is that of a stream, which ends with its broker: at the next one another detached session takes
// over what is still kept.
Session& Lending::detached_session_for(const Session& holder, TimePoint now) {
  Peer peer = peer_of_detached(holder);
  for (const SessionId id : state_.detached_sessions) {
    Session& known = state_.session(id);
    if (known.tenant == holder.tenant && known.peer == peer) return known;
  }
  const SessionId id = state_.session_ids.next();
  auto made = std::make_unique<Session>();
  made->id = id;
  made->tenant = holder.tenant;
  made->tenant_name = holder.tenant_name;
  made->peer = std::move(peer);
  made->since = now;
  made->detached = true;
  Session& detached = *made;
  state_.outbox.record(checkpoint_of(detached));
  state_.sessions.emplace(id, std::move(made));
  state_.session_order.insert(id);
  state_.detached_sessions.insert(id);
  state_.tenants.join(detached.tenant, id);
  return detached;
}

Region Lending::remove(RegionId id, TimePoint now) {
  Region removed = regions_.remove(id);
  let_go_unkept(removed, now);
  return removed;
}

// Lets go of the leases that a detached session had for this region alone. Readers of other tenants are
// charged for what they keep.
void Lending::let_go_unkept(const Region& removed, TimePoint now) {
  if (!removed.kept) return;
  for (const LeaseId id : removed.leases) {
    const auto found = leases_.find(id);
    if (found == leases_.end() || found->second->in_store || keeps(*found->second)) continue;
    if (state_.session(found->second->session).detached) let_go(*found->second, now);
  }
}

// ---- Who has it ----

void Lending::note_use(LeaseId lease) {
  const std::set<RegionId>& kept = regions_.kept_of(lease);
  changed_hands_.insert(kept.begin(), kept.end());
  if (!kept.empty()) nothing_to_give_up_.clear();
}

bool Lending::has_left(const Region& region) const {
  return std::ranges::all_of(region.leases, [this](LeaseId id) {
    return state_.session(lease(id).session).detached && !is_used(state_.imports.find(id));
  });
}

// Once for each event, whatever leases of it have changed hands.
void Lending::note_left(TimePoint now) {
  for (const RegionId id : std::exchange(changed_hands_, {})) {
    const Region* region = regions_.find(id);
    if (region == nullptr || !region->kept) continue;
    const TimePoint since = region->left == TimePoint::max() ? now : region->left;
    regions_.set_left(id, has_left(*region) ? since : TimePoint::max());
  }
}

Result<void> Lending::check_adoption(const Session& session, const Region& region) const {
  if (!region.kept) {
    return Error{Code::kFailedPrecondition,
                 "region '" + region.name + "' is not a kept one: it lives as long as its memory already"};
  }
  for (const SessionId id : holders_of(region)) {
    const Session& holder = state_.session(id);
    if (holder.detached || id == session.id) continue;
    return Error{Code::kFailedPrecondition, "session " + std::to_string(id.value) + " (pid " +
                                                std::to_string(holder.peer.pid) + ") has region '" +
                                                region.name + "': it is taken over once that has ended"};
  }
  return {};
}

// ---- What is asked of it ----

bool Lending::give_up_kept(TimePoint now) {
  bool gave_up = false;
  for (const SessionId id : std::vector(state_.detached_sessions.begin(), state_.detached_sessions.end())) {
    const Session& detached = state_.session(id);
    for (const auto& [device, request] : detached.asked) {
      const std::tuple asked(id, device, request.forced);
      if (request.own.is_zero() || nothing_to_give_up_.contains(asked)) continue;
      if (give_up_kept(detached, device, request, now))
        gave_up = true;
      else
        nothing_to_give_up_.insert(asked);  // until a kept region changes hands
    }
  }
  return gave_up;
}

// Unused regions go first, the longest unused one before the others. Regions in use go only by force: their
// readers are charged then.
bool Lending::give_up_kept(const Session& detached, DeviceIndex device, const ReclaimRequest& request,
                           TimePoint now) {
  using Rank = std::tuple<bool, TimePoint, RegionId>;
  std::set<Rank> ranks;
  for (const Lease& one : detached.leases) {
    if (one.device != device || one.in_store) continue;
    for (const RegionId id : regions_.kept_of(one.id)) {
      const Region& region = regions_.at(id);
      const bool used = region.left == TimePoint::max();
      if (request.forced || !used) ranks.emplace(used, region.left, id);
    }
  }
  const Bytes before = detached.holding(device).held();
  const Bytes asked = request.own;
  for (const auto& [used, left, id] : ranks) {
    if (before - detached.holding(device).held() >= asked) break;
    const Region removed = remove(id, now);
    Event& event = state_.outbox.note(Event::Kind::kRegionLost, detached, now);
    event.device = device;
    event.bytes = removed.bytes;
    event.words =
        words_of(removed) + ", was kept beyond what its tenant is guaranteed, and others need the memory";
  }
  return !ranks.empty();
}

}  // namespace gpumem::core
