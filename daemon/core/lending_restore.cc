#include <algorithm>

#include "base/printable.h"
#include "daemon/core/lending.h"

// Memory lent by an earlier broker is taken over at the start, and settled with each client that comes back.

namespace gpumem::core {

Checkpoint::Lease checkpoint_of(const Lease& lease) {
  return {lease.id,     lease.grant,       lease.session,  lease.slice,
          lease.device, lease.extent.size, lease.in_store, lease.fabric};
}

Checkpoint::Slice checkpoint_of(const Slice& slice, SessionId session) {
  return {slice.id, session, slice.device, slice.limit, slice.label};
}

void Lending::add_to(Checkpoint& checkpoint) const {
  for (const auto& [id, session] : state_.sessions) {
    for (const auto& [slice_id, slice] : session->slices)
      checkpoint.slices.emplace(slice_id, checkpoint_of(slice, id));
  }
  for (const auto& [id, lease] : leases_) checkpoint.leases.emplace(id, checkpoint_of(*lease));
  state_.imports.add_to(checkpoint);
  handles_.add_to(checkpoint);
  regions_.add_to(checkpoint);
  places_.add_to(checkpoint);
  const auto add = [&](const Request& request) {
    if (request.is_recorded)
      checkpoint.waiting.emplace(std::pair(request.session, request.id), checkpoint_of(request));
  };
  state_.arbiter.for_each(add);
  for (const auto& [id, assembly] : assemblies_) add(assembly.granted.request);
  checkpoint.last.slice = slice_ids_.last();
  checkpoint.last.lease = lease_ids_.last();
  checkpoint.last.grant = grant_ids_.last();
  checkpoint.last.import = state_.imports.last();
  checkpoint.last.region = regions_.last();
}

void Lending::skip(const Checkpoint::Numbers& last) {
  slice_ids_.skip(last.slice);
  lease_ids_.skip(last.lease);
  grant_ids_.skip(last.grant);
  state_.imports.skip(last.import);
  regions_.skip(last.region);
}

void Lending::adopt(DeviceIndex device, Bytes lent) {
  stores_[device].adopt(lent);
  state_.ledger.set_missing(device, stores_[device].missing());
}

void Lending::restore(Session& session, const Checkpoint::Slice& from, DeviceIndex device) {
  session.slices.emplace(from.id, Slice{from.id, device, from.limit, {}, {}, to_printable(from.label)});
}

// A descriptor that is not kept went with the broker that made the extent: its clients alone have it now.
Extent Lending::restore(Session& session, const Checkpoint::Lease& from, DeviceIndex device, bool kept) {
  const Charge state = session.ended ? Charge::kQuarantined : Charge::kActive;
  const Extent extent{kept ? extent_ids_.next() : ExtentId{}, from.size};
  auto made =
      std::unique_ptr<Lease>(new Lease{from.id, from.grant, extent, session.id, from.slice, device, state});
  Lease& lease = *made;
  lease.fabric = from.fabric;
  leases_.emplace(from.id, std::move(made));
  session.leases.push_back(lease);
  state_.ledger.adopt(session.tenant, device, from.size, state);
  Holding& holding = session.holdings[device];
  holding.charges[state] += from.size;
  if (from.fabric) holding.fabric[state] += from.size;
  if (Slice* slice = slice_of(session, from.slice)) {
    slice->charged += from.size;
    if (state == Charge::kActive) slice->held += from.size;
  } else if (!from.slice && state == Charge::kActive) {
    holding.inherited += from.size;
  }
  if (from.returned) take_back(lease);
  return extent;
}

void Lending::restore(const Checkpoint::Import& from) {
  std::vector<LeaseId> leases;
  for (const LeaseId id : from.leases) {
    const auto found = leases_.find(id);
    if (found == leases_.end()) continue;  // free since
    const Lease& one = *found->second;
    state_.imports.share(id, {one.session, one.device, one.extent.size});
    leases.push_back(id);
  }
  if (!leases.empty()) state_.imports.restore(from.id, from.session, std::move(leases));
}

void Lending::restore_suspect(LeaseId id, SessionId session) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  const Lease& one = *found->second;
  state_.imports.share(id, {one.session, one.device, one.extent.size});
  state_.imports.restore_suspect(id, session);
}

// A handle ends with any of its leases, and with the holder's part in it; without descriptors it is of no
// use.
void Lending::restore(const Checkpoint::Handle& from, DeviceIndex device, TimePoint now) {
  Bytes there;
  for (const LeaseId id : from.leases) {
    const auto found = leases_.find(id);
    if (found == leases_.end() || found->second->session != from.session || found->second->in_store ||
        !found->second->extent.id)
      return;
    there += found->second->extent.size;
  }
  if (from.expires <= now || !check_range(from.offset, from.bytes, there)) return;
  static_cast<void>(handles_.add(
      from.name, {from.session, device, from.leases, from.offset, from.bytes, from.expires, from.uses}, now));
}

// A region needs all of its leases with one tenant, and their descriptors. None stands for what was given out
// by fabric handles, though a journal may have one.
void Lending::restore(const Checkpoint::Region& from, DeviceIndex device, TimePoint now) {
  Bytes there;
  TenantId owner;
  bool is_in_hands = true;
  for (const LeaseId id : from.leases) {
    const auto found = leases_.find(id);
    if (found == leases_.end() || found->second->in_store || found->second->fabric) return;
    const TenantId tenant = state_.session(found->second->session).tenant;
    if (owner && owner != tenant) return;
    owner = tenant;
    there += found->second->extent.size;
    is_in_hands = is_in_hands && found->second->extent.id;
  }
  const bool has_time = from.kept ? from.linger > Duration::zero() : from.linger == Duration::max();
  const bool is_known_sharing = from.sharing <= static_cast<std::uint64_t>(Sharing::kNamed);
  if (!owner || from.expires <= now || !has_time || !is_known_sharing ||
      !check_range(from.offset, from.bytes, there))
    return;
  if (!is_in_hands) {
    Event& event = state_.outbox.note(Event::Kind::kRegionLost, now);
    event.tenant = state_.tenants.name(owner);
    event.device = device;
    event.bytes = from.bytes;
    event.words = words_of(from.name, from.id) +
                  ", since the broker was started without the descriptors of its memory: publish it again";
    return;
  }
  regions_.restore({from.id, owner, from.name, device, from.leases, from.offset, from.bytes, from.layout,
                    from.digest, static_cast<Sharing>(from.sharing), from.readers, from.since, from.expires,
                    from.kept, from.linger, from.kept ? from.left : TimePoint::max()});
}

void Lending::restore(const Checkpoint::RegionSealed& from) {
  if (regions_.find(from.id) != nullptr) regions_.restore_sealed(from.id);
}

Result<void> Lending::check_inventory(const Session& session, const Inventory& inventory) const {
  const auto unknown = [](const std::string& what, std::uint64_t id) {
    return Error{Code::kPermissionDenied, what + " " + std::to_string(id) + " is not the session's"};
  };
  for (const SliceId id : inventory.slices)
    if (!session.slices.contains(id)) return unknown("slice", id.value);
  for (const LeaseId id : inventory.leases) {
    const auto found = leases_.find(id);
    if (found == leases_.end() || found->second->session != session.id || found->second->in_store)
      return unknown("lease", id.value);
  }
  for (const ImportId id : inventory.imports)
    if (!state_.imports.of(session.id).contains(id)) return unknown("import", id.value);
  return {};
}

// A lease that is not in the inventory never reached it, or is one that it gave back last.
void Lending::settle_inventory(Session& session, const Inventory& inventory, TimePoint now) {
  for (auto next = session.leases.begin(); next != session.leases.end();) {
    Lease& one = *next++;  // the lease may pass to another session
    if (one.slice && !std::ranges::binary_search(inventory.leases, one.id)) let_go(one, now);
  }
  std::vector<ImportId> missing;
  for (const auto& [id, leases] : state_.imports.of(session.id))
    if (!std::ranges::binary_search(inventory.imports, id)) missing.push_back(id);
  for (const ImportId id : missing) static_cast<void>(release_import(session, id, now));
  std::vector<SliceId> unused;
  for (const auto& [id, slice] : session.slices)
    if (!std::ranges::binary_search(inventory.slices, id)) unused.push_back(id);
  for (const SliceId id : unused) static_cast<void>(close_slice(session, id));  // unless it holds leases
}

}  // namespace gpumem::core
