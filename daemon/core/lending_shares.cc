#include <algorithm>

#include "daemon/core/lending.h"
#include "daemon/core/refusals.h"

// Extents whose charge is shared: who pays them together with the tenant that has them.

namespace gpumem::core {

// One extent has one charge, so all regions of it have the same. Who has mapped it did so by that charge.
Result<void> Lending::check_charging(std::span<const LeaseId> ids, Charging charging) const {
  for (const LeaseId id : ids) {
    const Lease& one = lease(id);
    if (one.shared == (charging == Charging::kShared)) continue;
    if (!regions_.has(id) && payers_of(one).empty()) continue;
    return Error{Code::kFailedPrecondition,
                 std::string("an extent of it is published, or mapped by other tenants, with the charge '") +
                     (one.shared ? "shared" : "publisher") +
                     "': all regions of an extent have the same; publish other memory, or wait until nobody "
                     "has it mapped"};
  }
  return {};
}

void Lending::set_charging(std::span<const LeaseId> ids, Charging charging) {
  const bool shared = charging == Charging::kShared;
  for (const LeaseId id : ids) {
    if (std::exchange(lease(id).shared, shared) != shared)
      state_.outbox.record(Checkpoint::LeaseSharing{id, shared});
  }
}

Shares::Extent Lending::shared_extent(const Lease& lease) const {
  return {lease.id, state_.session(lease.session).tenant, lease.device, lease.extent.size};
}

// The tenants besides the holder's that have it mapped.
Shares::Payers Lending::payers_of(const Lease& lease) const {
  Shares::Payers payers;
  const Imports::Shared* const shared = state_.imports.find(lease.id);
  if (shared == nullptr) return payers;
  for (const auto& [user, count] : shared->users) {
    const Session* const session = count == 0 ? nullptr : state_.find(user);
    if (session != nullptr && !session->exited) payers.insert(session->tenant);
  }
  payers.erase(state_.session(lease.session).tenant);
  return payers;
}

void Lending::settle_shares() {
  for (const LeaseId id : std::exchange(changed_users_, {})) {
    const auto found = leases_.find(id);
    if (found == leases_.end() || !found->second->shared || found->second->in_store) continue;
    const Lease& one = *found->second;
    shares_.settle(shared_extent(one), payers_of(one));
  }
}

void Lending::drop_shares() {
  shares_.drop_all();
  for (const auto& [id, lease] : leases_)
    if (lease->shared) changed_users_.insert(id);
}

Result<void> Lending::begin_share(const Session& session, const Region& region) {
  if (region.charging != Charging::kShared) return {};
  Bytes share;
  TenantId limiting;
  for (const LeaseId id : region.leases) {
    const Lease& one = lease(id);
    const Shares::Extent extent = shared_extent(one);
    const Shares::Payers payers = payers_of(one);
    if (extent.holder == session.tenant || payers.contains(session.tenant)) continue;
    changed_users_.insert(id);
    if (payers.size() + 1 >= Shares::kMostPayers) {
      settle_shares();
      return refusal(Bound::kImports, "region '" + region.name + "' is paid by " +
                                          std::to_string(Shares::kMostPayers) +
                                          " tenants together, as many as may share a charge");
    }
    share += Bytes{extent.size.count / (payers.size() + 2)};
    if (!limiting) limiting = shares_.admit(extent, payers, session.tenant);
  }
  if (!limiting) return {};
  settle_shares();
  const Ledger& ledger = state_.ledger;
  return Error{Code::kResourceExhausted,
               "who maps region '" + region.name + "' pays a share of it: " + to_string(share) +
                   " for tenant '" + session.tenant_name + "', which would pass the limit of tenant '" +
                   state_.tenants.name(limiting) + "' on " + state_.policy.devices[region.device].uuid +
                   " (" + to_string(ledger.quota(limiting, region.device).limit) + ", of which " +
                   to_string(ledger.used(limiting, region.device)) +
                   " are charged already); give memory back or ask the administrator for a higher limit"};
}

Shares::Parts Lending::shares_of(const Region& region) const {
  Shares::Parts sum;
  for (const LeaseId id : region.leases)
    for (const auto& [payer, bytes] : shares_.of(id)) sum[payer] += bytes;
  return sum;
}

}  // namespace gpumem::core
