#include <algorithm>
#include <array>

#include "base/crash_point.h"
#include "daemon/core/lending.h"

// Memory that several sessions of a tenant use: handles of it, imports, and who has it when its session lets
// go.

namespace gpumem::core {
namespace {

constexpr Duration kLongestLife = std::chrono::hours(24);
constexpr std::uint64_t kMostUses = 1'000'000;

// The message is the same for a handle that never existed: trying reveals no foreign handles.
Error no_handle() {
  return {Code::kNotFound,
          "the broker knows no such handle: it has expired, was used up, its memory was given back, or it is "
          "another tenant's"};
}

Result<void> check_handle(TimePoint expires, std::uint64_t uses, TimePoint now) {
  if (expires <= now || expires - now > kLongestLife)
    return Error{Code::kInvalidArgument, "a handle lives for some time, 24 hours at most"};
  if (uses == 0 || uses > kMostUses)
    return Error{Code::kInvalidArgument, "a handle is for 1 to " + std::to_string(kMostUses) + " imports"};
  return {};
}

}  // namespace

Result<void> check_range(Bytes offset, Bytes bytes, Bytes there) {
  const auto end = offset.plus(bytes);
  if (!bytes.is_zero() && end && *end <= there) return {};
  return Error{Code::kInvalidArgument, "a handle of " + to_string(bytes) + " from " + to_string(offset) +
                                           " on, in leases of " + to_string(there)};
}

// The bytes of leases that can be given out.
Result<Bytes> Lending::check_exported(const Session& session, SliceId slice,
                                      std::span<const LeaseId> ids) const {
  if (!session.slices.contains(slice)) return Error{Code::kNotFound, "the session has no such slice"};
  if (ids.empty() || ids.size() > Handles::kMostLeases) {
    return Error{Code::kInvalidArgument, "a handle is for 1 to " + std::to_string(Handles::kMostLeases) +
                                             " leases, not " + std::to_string(ids.size()) +
                                             ": make several of smaller ranges"};
  }
  Bytes there;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto found = leases_.find(ids[i]);
    const bool is_its_own = found != leases_.end() && found->second->session == session.id &&
                            found->second->slice == slice && found->second->state == Charge::kActive;
    const bool again = std::count(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i), ids[i]) != 0;
    if (!is_its_own || again) {
      return Error{Code::kNotFound, "lease " + std::to_string(ids[i].value) +
                                        " is not on loan to this slice, or not accepted yet"};
    }
    there += found->second->extent.size;
  }
  return there;
}

// Without it there is nothing to send to whoever imports.
Result<void> Lending::check_descriptors(std::span<const LeaseId> ids) const {
  if (std::ranges::all_of(ids, [&](LeaseId id) { return static_cast<bool>(lease(id).extent.id); })) return {};
  return Error{
      Code::kFailedPrecondition,
      "some of this memory was granted before the broker was restarted: the broker cannot hand it on "
      "any more; what a new allocator or slice is granted can be shared"};
}

Result<void> Lending::export_handle(const Session& session, ExportHandle request, const HandleBytes& bytes,
                                    TimePoint now) {
  const auto there = check_exported(session, request.slice, request.leases);
  if (!there) return there.error();
  if (auto in_hands = check_descriptors(request.leases); !in_hands) return in_hands;
  if (std::ranges::any_of(request.leases, [&](LeaseId id) { return lease(id).fabric; })) {
    return Error{Code::kFailedPrecondition,
                 "some of this memory was given out by fabric handles: others import it by those"};
  }
  if (std::ranges::any_of(request.leases, [this](LeaseId id) { return regions_.is_sealed(id); })) {
    return Error{Code::kFailedPrecondition,
                 "some of this memory is sealed: who imports a handle of it could write to it; others map "
                 "the region by its name"};
  }
  if (request.bytes.is_zero()) request.bytes = there->minus(request.offset);
  if (auto range = check_range(request.offset, request.bytes, *there); !range) return range;
  const std::uint64_t uses = std::max<std::uint64_t>(request.uses, 1);
  if (auto right = check_handle(request.expires(now), uses, now); !right) return right;
  return handles_.add(bytes,
                      {session.id, session.slices.at(request.slice).device, request.leases, request.offset,
                       request.bytes, request.expires(now), uses},
                      now);
}

Result<void> Lending::revoke_handle(const Session& session, const HandleBytes& bytes) {
  if (handles_.revoke(session.id, bytes)) return {};
  return Error{Code::kNotFound,
               "the session has no such handle: it has expired, was used up, or its memory was given back"};
}

Result<const Handle*> Lending::redeemable(const Session& session, const HandleBytes& bytes,
                                          TimePoint now) const {
  const Handle* handle = handles_.find(bytes, now);
  if (handle == nullptr) return no_handle();
  const Session& holder = state_.session(handle->holder);
  if (holder.tenant != session.tenant) return no_handle();
  if (auto able = check_importer(session, holder); !able) return able.error();
  return handle;
}

Result<void> Lending::check_importer(const Session& session, const Session& holder) const {
  if (holder.peer.can_be_ended && !session.peer.can_be_ended) {
    return Error{Code::kPermissionDenied,
                 "the kernel does not let the broker signal this process, so it may not use others' memory"};
  }
  return state_.imports.check_room(session.id);
}

Imported Lending::import_handle(const Session& session, const HandleBytes& bytes, const Handle& handle) {
  Imported imported = import(session, handle.device, handle.leases, handle.offset, handle.bytes);
  handles_.use(bytes);
  return imported;
}

Imported Lending::import(const Session& session, DeviceIndex device, const std::vector<LeaseId>& leases,
                         Bytes offset, Bytes bytes) {
  Imported imported{{}, device, {}, offset, bytes};
  for (const LeaseId id : leases) {
    const Lease& one = lease(id);
    state_.imports.share(id, {one.session, one.device, one.extent.size});
    imported.leases.emplace_back(id, one.extent);
  }
  imported.id = state_.imports.add(session.id, leases);
  state_.outbox.record(Checkpoint::Import{imported.id, session.id, leases});
  return imported;
}

Result<void> Lending::release_import(Session& session, ImportId import, TimePoint now) {
  const auto unused = state_.imports.release(session.id, import);
  if (!unused) return unused.error();
  state_.outbox.record(Checkpoint::ImportGone{import});
  note_suspect(session.id, *unused);
  for (const LeaseId id : *unused) {
    Lease& one = lease(id);
    if (one.session == session.id && !one.slice) let_go(one, now);
    note_use(id);
  }
  return {};
}

// For the next broker. What is free already has nobody who may keep it.
void Lending::note_suspect(SessionId session, std::span<const LeaseId> leases) {
  Checkpoint::Suspect suspect{session, {}};
  for (const LeaseId id : leases)
    if (state_.imports.suspects(id, session)) suspect.leases.push_back(id);
  if (!suspect.leases.empty()) state_.outbox.record(std::move(suspect));
}

void Lending::remember_with(SessionId from, SessionId to) {
  const std::vector<LeaseId> leases = state_.imports.suspected_of(from);
  state_.imports.remember_with(from, to);
  for (const LeaseId id : leases) note_suspect(to, std::array{id});
}

// The session no longer uses the lease. A session that has imported it holds it now.
void Lending::let_go(Lease& lease, TimePoint now) {
  if (lease.in_store) return;
  handles_.drop(lease.id);
  Session* successor = successor_of(lease);
  const Session& holder = state_.session(lease.session);
  // A region stays with its tenant.
  if (successor == nullptr || successor->tenant != holder.tenant) {
    const bool kept = keeps(lease);
    drop_regions(lease, kept ? Regions::Which::kNotKept : Regions::Which::kAll, now);
    if (kept) {
      successor = &custodian_for(holder, now);
      crash_at(CrashPoint::kRegionKept);
      state_.imports.share(lease.id, {holder.id, lease.device, lease.extent.size});  // so it may keep it
    }
  }
  if (successor != nullptr) {
    pass(lease, *successor);
    if (!successor->custodian)
      state_.note_bytes(Event::Kind::kInherited, *successor, lease.device, lease.extent.size, now);
  } else {
    take_back(lease);
  }
  note_use(lease.id);
}

// A lease that is not proved free although its process is gone passes to a session that ever used it.
void Lending::pass_unproved(Lease& lease) {
  const Session& holder = state_.session(lease.session);
  if (!lease.unproved || !(holder.exited || holder.custodian)) return;
  if (Session* successor = successor_of(lease)) pass(lease, *successor);
}

// Its own tenant comes first, and of that who can still be asked.
Session* Lending::successor_of(const Lease& lease) {
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

void Lending::pass(Lease& lease, Session& successor) {
  Session& before = state_.session(lease.session);
  const Bytes size = lease.extent.size;
  if (!lease.in_store) set_state(lease, Charge::kReturning);  // out of its slice and its grant
  if (Slice* slice = slice_of(before, lease.slice)) slice->charged -= size;
  Holding& from = before.holdings[lease.device];
  Holding& to = successor.holdings[lease.device];
  from.charges[lease.state] -= size;
  if (&before != &successor) from.freed += size;
  to.charges[lease.state] += size;
  if (lease.fabric) {
    from.fabric[lease.state] -= size;
    to.fabric[lease.state] += size;
  } else if (lease.unproved) {
    from.unproved -= size;
    to.unproved += size;
  }
  if (before.tenant != successor.tenant) {  // the successor maps a region, or a reload has separated the two
    Charges moved;
    moved[lease.state] = size;
    state_.ledger.transfer(before.tenant, successor.tenant, lease.device, moved, {});
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
