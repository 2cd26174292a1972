#include <algorithm>

#include "base/text/printable.h"
#include "daemon/core/lending/leases.h"

// Leases in the journal, and after a restart.

namespace gpumem::core {

void Leases::add_to(Checkpoint& checkpoint) const {
  for (const auto& [id, session] : state_.sessions) {
    for (const auto& [slice_id, slice] : session->slices)
      checkpoint.slices.emplace(slice_id, checkpoint_of(slice, id));
  }
  for (const auto& [id, lease] : leases_) checkpoint.leases.emplace(id, checkpoint_of(*lease));
  state_.imports.add_to(checkpoint);
  checkpoint.last.slice = slice_ids_.last();
  checkpoint.last.lease = lease_ids_.last();
  checkpoint.last.grant = grant_ids_.last();
  checkpoint.last.import = state_.imports.last();
}

void Leases::skip(const Checkpoint::Numbers& last) {
  slice_ids_.skip(last.slice);
  lease_ids_.skip(last.lease);
  grant_ids_.skip(last.grant);
  state_.imports.skip(last.import);
}

void Leases::adopt(DeviceIndex device, Bytes lent) {
  stores_[device].adopt(lent);
  state_.ledger.set_missing(device, stores_[device].missing());
}

void Leases::restore(Session& session, const Checkpoint::Slice& from, DeviceIndex device) {
  session.slices.emplace(
      from.id, Slice{from.id, device, from.limit, {}, {}, to_printable(from.label), 0, from.is_private});
}

// A descriptor that is not kept went with the broker that made the extent: its clients alone have it now.
Extent Leases::restore(Session& session, const Checkpoint::Lease& from, DeviceIndex device, bool kept) {
  const Charge state = session.ended ? Charge::kQuarantined : Charge::kActive;
  const Extent extent{kept ? extent_ids_.next() : ExtentId{}, from.size};
  Lease& lease = put(
      std::unique_ptr<Lease>(new Lease{from.id, from.grant, extent, session.id, from.slice, device, state}));
  lease.fabric = from.fabric;
  stores_[device].adopt_extent();
  state_.ledger.adopt(session.leaf, device, from.size, state);
  Holding& holding = session.holdings[device];
  holding.add(lease);
  if (Slice* slice = session.slice(from.slice)) {
    slice->charged += from.size;
    if (state == Charge::kActive) slice->held += from.size;
  } else if (!from.slice && state == Charge::kActive) {
    holding.inherited += from.size;
  }
  if (from.returned) take_back(lease, {});  // its other users are restored later
  return extent;
}

void Leases::restore(const Checkpoint::Import& from) {
  std::vector<LeaseId> leases;
  for (const LeaseId id : from.leases) {
    const Lease* one = find(id);
    if (one == nullptr) continue;  // free since
    share(*one);
    leases.push_back(id);
  }
  if (!leases.empty()) state_.imports.restore(from.id, from.session, std::move(leases));
}

void Leases::restore_suspect(LeaseId id, SessionId session) {
  const Lease* one = find(id);
  if (one == nullptr) return;
  share(*one);
  state_.imports.restore_suspect(id, session);
}

Result<void> Leases::check_inventory(const Session& session, const Inventory& inventory) const {
  const auto unknown = [](const std::string& what, std::uint64_t id) {
    return Error{Code::kPermissionDenied, what + " " + std::to_string(id) + " is not the session's"};
  };
  for (const SliceId id : inventory.slices)
    if (!session.slices.contains(id)) return unknown("slice", id.value);
  for (const LeaseId id : inventory.leases) {
    const Lease* one = find(id);
    if (one == nullptr || one->session != session.id || one->in_store) return unknown("lease", id.value);
  }
  for (const ImportId id : inventory.imports)
    if (!state_.imports.of(session.id).contains(id)) return unknown("import", id.value);
  return {};
}

// A lease that the client does not claim has never reached it, or was given back just before.
void Leases::settle_inventory(Session& session, const Inventory& inventory, TimePoint now) {
  for (auto next = session.leases.begin(); next != session.leases.end();) {
    Lease& one = *next++;  // the lease may pass to another session
    if (one.slice && !std::ranges::binary_search(inventory.leases, one.id)) let_go(one, now);
  }
  std::vector<ImportId> missing;
  for (const auto& [id, leases] : state_.imports.of(session.id))
    if (!std::ranges::binary_search(inventory.imports, id)) missing.push_back(id);
  for (const ImportId id : missing) static_cast<void>(release_import(session, id, now));
  // The earlier broker was ended between the records of an import's release.
  const auto& known = state_.imports.known(session.id);
  for (auto next = session.leases.begin(); next != session.leases.end();) {
    Lease& one = *next++;
    if (!one.slice && !one.in_store && !known.contains(one.id)) let_go(one, now);
  }
  std::vector<SliceId> unused;
  for (const auto& [id, slice] : session.slices)
    if (!std::ranges::binary_search(inventory.slices, id)) unused.push_back(id);
  for (const SliceId id : unused) static_cast<void>(close_slice(session, id));  // unless it holds leases
}

}  // namespace gpumem::core
