#include <algorithm>

#include "daemon/core/lending.h"
#include "daemon/core/refusals.h"

// Extents whose charge is shared: who pays them together with the tenant that has them.

namespace gpumem::core {
namespace {

// Each takes some time for all extents whose parts found no room.
constexpr int kMostRounds = 64;

}  // namespace

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

// A part may find room only once its tenant's own holders are relieved by another: what found none is looked
// at again while something changes.
void Lending::settle_shares() {
  std::set<LeaseId> open = std::exchange(changed_users_, {});
  for (int round = 0; round < kMostRounds && !open.empty(); ++round) {
    bool changed = false;
    std::erase_if(open, [&](LeaseId id) {
      const auto found = leases_.find(id);
      if (found == leases_.end() || !found->second->shared || found->second->in_store) return true;
      const Shares::Settled settled =
          shares_.settle(shared_extent(*found->second), payers_of(*found->second));
      changed |= settled.changed;
      return !settled.is_short;
    });
    if (!changed) break;
  }
}

Shares::Standing Lending::take_shares() { return shares_.take_all(); }

// Who has mapped an extent since pays nothing yet.
void Lending::resume_shares(const Shares::Standing& before) {
  for (const auto& [id, lease] : leases_)
    if (lease->shared && !lease->in_store) changed_users_.insert(id);
  for (const auto& [id, paid] : before.parts) {
    if (!changed_users_.contains(id)) continue;
    const Shares::Extent extent = shared_extent(lease(id));
    const Shares::Payers payers = payers_of(lease(id));
    const Bytes equal{extent.size.count / (payers.size() + 1)};
    Shares::Parts parts;
    for (const auto& [payer, bytes] : paid)
      if (payers.contains(payer)) parts.emplace(payer, std::min(bytes, equal));
    shares_.resume(extent, parts);
  }
  shares_.shed(before);
  settle_shares();
}

// Parts follow from who has mapped what: all of them at once, since a tenant may have room for its part of
// one only while others pay for what it has itself.
void Lending::restore_shares() {
  Shares::Standing all;
  for (const LeaseId id : changed_users_) {
    const Lease& one = lease(id);
    if (!one.shared || one.in_store) continue;
    Shares::Parts& parts = all.parts[id];
    for (const TenantId payer : payers_of(one)) parts.emplace(payer, one.extent.size);
  }
  resume_shares(all);
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
