#include <algorithm>
#include <array>

#include "base/crash_point.h"
#include "daemon/core/lending/leases.h"

// Leases that several sessions use: imports, and the session that is charged once another lets go.

namespace gpumem::core {

Result<void> check_range(Bytes offset, Bytes bytes, Bytes there) {
  const auto end = offset.plus(bytes);
  if (!bytes.is_zero() && end && *end <= there) return {};
  return Error{Code::kInvalidArgument, "a handle of " + to_string(bytes) + " from " + to_string(offset) +
                                           " on, in leases of " + to_string(there)};
}

Result<Bytes> Leases::check_exported(const Session& session, SliceId slice,
                                     std::span<const LeaseId> ids) const {
  const auto known = session.slices.find(slice);
  if (known == session.slices.end()) return Error{Code::kNotFound, "the session has no such slice"};
  if (known->second.is_private) {
    return Error{Code::kFailedPrecondition,
                 "this memory is for one process alone: others map memory of a slice that was opened for it"};
  }
  if (ids.empty() || ids.size() > Handles::kMostLeases) {
    return Error{Code::kInvalidArgument, "a handle is for 1 to " + std::to_string(Handles::kMostLeases) +
                                             " leases, not " + std::to_string(ids.size()) +
                                             ": make several of smaller ranges"};
  }
  Bytes there;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Lease* one = find(ids[i]);
    const bool is_its_own =
        one != nullptr && one->session == session.id && one->slice == slice && one->state == Charge::kActive;
    const bool again = std::count(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i), ids[i]) != 0;
    if (!is_its_own || again) {
      return Error{Code::kNotFound, "lease " + std::to_string(ids[i].value) +
                                        " is not on loan to this slice, or not accepted yet"};
    }
    there += one->extent.size;
  }
  if (auto in_hands = check_descriptors(ids); !in_hands) return in_hands.error();
  return there;
}

// An importer is sent the descriptors.
Result<void> Leases::check_descriptors(std::span<const LeaseId> ids) const {
  if (std::ranges::all_of(ids, [&](LeaseId id) { return static_cast<bool>(at(id).extent.id); })) return {};
  return Error{
      Code::kFailedPrecondition,
      "some of this memory was granted before the broker was restarted: the broker cannot hand it on "
      "any more; what a new allocator or slice is granted can be shared"};
}

Result<void> Leases::check_no_fabric(std::span<const LeaseId> ids) const {
  if (std::ranges::none_of(ids, [&](LeaseId id) { return at(id).fabric; })) return {};
  return Error{Code::kFailedPrecondition,
               "some of this memory was given out by fabric handles: others import it by those"};
}

Result<void> Leases::check_importer(const Session& session, const Session& holder) const {
  if (holder.peer.can_be_ended && !session.peer.can_be_ended) {
    return Error{Code::kPermissionDenied,
                 "the kernel does not let the broker signal this process, so it may not use others' memory"};
  }
  return state_.imports.check_room(session.id);
}

Imported Leases::import(Session& session, DeviceIndex device, const std::vector<LeaseId>& leases,
                        Bytes offset, Bytes bytes) {
  Imported imported{{}, device, {}, offset, bytes};
  for (const LeaseId id : leases) {
    share(at(id));
    imported.leases.emplace_back(id, at(id).extent);
  }
  imported.id = state_.imports.add(session.id, leases);
  state_.outbox.record(Checkpoint::Import{imported.id, session.id, leases});
  for (const LeaseId id : leases) {
    const Session& holder = state_.session(at(id).session);
    if (holder.detached && holder.tenant == session.tenant) pass(lease(id), session);
    regions_.note_change(id);
  }
  return imported;
}

void Leases::share(const Lease& lease) {
  state_.imports.share(lease.id, {lease.session, lease.device, lease.extent.size});
}

Result<void> Leases::release_import(Session& session, ImportId import, TimePoint now) {
  const auto unused = state_.imports.release(session.id, import);
  if (!unused) return unused.error();
  state_.outbox.record(Checkpoint::ImportGone{import});
  note_suspect(session.id, *unused);
  for (const LeaseId id : *unused) {
    Lease& one = lease(id);
    if (one.session == session.id && !one.slice) let_go(one, now);
    regions_.note_change(id);
  }
  return {};
}

// Records for the next broker which of the leases the session may still keep.
void Leases::note_suspect(SessionId session, std::span<const LeaseId> leases) {
  Checkpoint::Suspect suspect{session, {}};
  for (const LeaseId id : leases)
    if (state_.imports.suspects(id, session)) suspect.leases.push_back(id);
  if (!suspect.leases.empty()) state_.outbox.record(std::move(suspect));
}

void Leases::remember_with(SessionId from, SessionId to) {
  const std::vector<LeaseId> leases = state_.imports.suspected_of(from);
  state_.imports.remember_with(from, to);
  for (const LeaseId id : leases) note_suspect(to, std::array{id});
}

void Leases::give_by_fabric(LeaseId id) {
  Lease& one = lease(id);
  if (std::exchange(one.fabric, true)) return;
  handles_.drop(id);
  state_.outbox.record(checkpoint_of(one));
  state_.session(one.session).holdings[one.device].fabric[one.state] += one.extent.size;
  state_.outbox.touch(one.session);
}

// The session no longer uses the lease. A session that has imported it holds it now.
void Leases::let_go(Lease& lease, TimePoint now) {
  if (lease.in_store) return;
  handles_.drop(lease.id);
  Session* successor = successor_of(lease);
  const Session& holder = state_.session(lease.session);
  // A region stays with its tenant.
  if (successor == nullptr || successor->tenant != holder.tenant) {
    const bool kept = keeps(lease);
    for (const Region& region :
         regions_.drop(lease.id, kept ? Regions::Which::kNotKept : Regions::Which::kAll)) {
      describe(region, state_.note(Event::Kind::kRegionLost, holder, now));
      let_go_unkept(region, now);
    }
    if (kept) {
      successor = &detached_session_for(holder, now);
      crash_at(CrashPoint::kRegionKept);
      share(lease);  // its session may still keep it
    }
  }
  if (successor != nullptr) {
    pass(lease, *successor);
    if (!successor->detached)
      state_.note_bytes(Event::Kind::kInherited, *successor, lease.device, lease.extent.size, now);
  } else {
    const bool is_shared = lease.fabric || state_.imports.find(lease.id) != nullptr;
    take_back(lease, is_shared ? SessionId{} : lease.session);
  }
  regions_.note_change(lease.id);
}

// ---- Ends of regions, in pieces ----

// As let_go() will, for as many regions as a piece of work has time for.
void Leases::end_some_of(const Lease& lease, OwnImports own, std::size_t& left, TimePoint now) {
  if (!regions_.has(lease.id) || lease.in_store || has_mate(lease, own)) return;
  std::vector<RegionId> ending;
  for (const RegionId id : regions_.of(lease.id)) {
    if (ending.size() == left) break;
    if (!regions_.at(id).kept) ending.push_back(id);
  }
  for (const RegionId id : ending)
    describe(regions_.remove(id), state_.note(Event::Kind::kRegionLost, state_.session(lease.session), now));
  left -= ending.size();
}

bool Leases::end_some_of(const Session& session, std::span<const LeaseId> ids, OwnImports own,
                         TimePoint now) {
  std::size_t left = kMostInARow;
  for (const LeaseId id : ids) {
    if (const Lease* one = find(id); one != nullptr && one->session == session.id)
      end_some_of(*one, own, left, now);
    if (left == 0) return true;
  }
  return false;
}

bool Leases::end_some_regions(const Session& session, TimePoint now) {
  std::size_t left = kMostInARow;
  for (const Lease& lease : session.leases) {
    end_some_of(lease, OwnImports::kEnd, left, now);
    if (left == 0) return true;
  }
  return false;
}

bool Leases::end_some_regions(const Session& session, SliceId slice, std::span<const LeaseId> ids,
                              TimePoint now) {
  const bool any = std::ranges::any_of(ids, [this](LeaseId id) { return regions_.has(id); });
  return any && check_returned(session, slice, ids) && end_some_of(session, ids, OwnImports::kStay, now);
}

// Leases that the session has inherited, and of which this is its last import.
bool Leases::end_some_regions(const Session& session, ImportId import, TimePoint now) {
  const auto& imports = state_.imports.of(session.id);
  const auto released = imports.find(import);
  if (released == imports.end()) return false;
  std::vector<LeaseId> leaving;
  for (const LeaseId id : released->second) {
    const Imports::Shared* const shared = state_.imports.find(id);
    if (shared == nullptr) continue;  // free since
    const auto used = shared->users.find(session.id);
    const bool is_last = used != shared->users.end() && used->second == 1;
    if (is_last && !at(id).slice) leaving.push_back(id);
  }
  return end_some_of(session, leaving, OwnImports::kEnd, now);
}

// Whether a session of the tenant has the lease afterwards. Then its regions go on.
bool Leases::has_mate(const Lease& lease, OwnImports own) const {
  const Imports::Shared* const shared = state_.imports.find(lease.id);
  if (shared == nullptr) return false;
  const TenantId owner = state_.session(lease.session).tenant;
  return std::ranges::any_of(shared->users, [&](const auto& user) {
    const Session* const known = state_.find(user.first);
    const bool stays = user.first != lease.session || own == OwnImports::kStay;
    return stays && user.second != 0 && known != nullptr && !known->exited && known->tenant == owner;
  });
}

// ---- Memory that passes on ----

void Leases::let_go_unkept(const Region& removed, TimePoint now) {
  if (!removed.kept) return;
  for (const LeaseId id : removed.leases) {
    const Lease* one = find(id);
    if (one == nullptr || one->in_store || keeps(*one)) continue;
    if (state_.session(one->session).detached) let_go(lease(id), now);
  }
}

// A detached session has the holder's peer, so any later policy gives both the same tenant. It is recorded as
// a stream, which ends with its broker. At the next broker another detached session takes over the regions
// that are still kept.
Session& Leases::detached_session_for(const Session& holder, TimePoint now) {
  Peer peer = holder.peer;
  peer.pid = 0;
  peer.started = 0;
  peer.maps = false;
  peer.command = "(kept regions)";
  for (const SessionId id : state_.detached_sessions) {
    Session& known = state_.session(id);
    if (known.tenant == holder.tenant && known.peer == peer) return known;
  }
  const SessionId id = state_.session_ids.next();
  auto made = std::make_unique<Session>();
  made->id = id;
  made->tenant = holder.tenant;
  made->leaf = state_.tenants.leaf_of(holder.tenant);
  made->tenant_name = holder.tenant_name;
  made->peer = std::move(peer);
  made->since = now;
  made->detached = true;
  Session& detached = *made;
  state_.outbox.record(checkpoint_of(detached));
  state_.sessions.emplace(id, std::move(made));
  state_.session_order.insert(id);
  state_.detached_sessions.insert(id);
  state_.tenants.join(detached.leaf, id);
  return detached;
}

// Sessions of the lease's tenant come first, and among them sessions that can still be asked.
Session* Leases::successor_of(const Lease& lease) {
  const Imports::Shared* shared = state_.imports.find(lease.id);
  if (shared == nullptr) return nullptr;
  const TenantId owner = state_.session(lease.session).tenant;
  const auto rank = [&](const Session& session) {
    return 2 * static_cast<int>(session.tenant == owner) + static_cast<int>(!session.ended);
  };
  Session* successor = nullptr;
  for (const auto& [user, count] : shared->users) {
    Session* known = state_.find(user);
    if (known == nullptr || known->exited || (count == 0 && !lease.in_store)) continue;
    if (successor == nullptr || rank(*known) > rank(*successor)) successor = known;
  }
  return successor;
}

void Leases::pass(Lease& lease, Session& successor) {
  Session& before = state_.session(lease.session);
  const Bytes size = lease.extent.size;
  count_unanswered(lease, {});
  if (!lease.in_store) set_state(lease, Charge::kReturning);  // out of its slice and its grant
  if (Slice* slice = before.slice(lease.slice)) slice->charged -= size;
  Holding& from = before.holdings[lease.device];
  Holding& to = successor.holdings[lease.device];
  from.remove(lease);
  from.count_extent(lease, -1);
  if (&before != &successor) from.freed += size;
  to.add(lease);
  to.count_extent(lease, 1);
  if (before.leaf !=
      successor.leaf) {  // of another job, or the successor maps a region, or a reload has separated the two
    Charges moved;
    moved[lease.state] = size;
    state_.transfer(before, successor.leaf, lease.device, moved);
  }
  lease.session = successor.id;
  lease.slice = {};
  lease.place.unlink();
  successor.leases.push_back(lease);
  state_.outbox.record(checkpoint_of(lease));
  if (state_.imports.find(lease.id) != nullptr)
    state_.imports.pass(lease.id, successor.id, before.peer.maps && !before.exited);
  note_suspect(before.id, std::array{lease.id});
  state_.outbox.touch(before.id);
  state_.outbox.touch(successor.id);
  if (lease.in_store) return;
  set_state(lease, successor.ended ? Charge::kQuarantined : Charge::kActive);
  if (!successor.ended) to.inherited += size;
}

}  // namespace gpumem::core
