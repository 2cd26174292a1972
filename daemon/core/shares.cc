#include "daemon/core/shares.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace gpumem::core {

Shares::Settled Shares::settle(const Extent& extent, const Payers& payers) {
  Settled settled;
  const auto known = splits_.find(extent.lease);
  if (known == splits_.end() && payers.empty()) return settled;
  Split& split = known != splits_.end()
                     ? known->second
                     : splits_.emplace(extent.lease, Split{extent.holder, extent.device, {}}).first->second;
  const Bytes equal{extent.size.count / (payers.size() + 1)};
  // What becomes less makes room, perhaps below the same limit.
  for (auto next = split.parts.begin(); next != split.parts.end();) {
    const Bytes before = next->second;
    next->second = payers.contains(next->first) ? std::min(before, equal) : Bytes{};
    change(split, next->first, before, next->second);
    settled.changed |= next->second != before;
    next = next->second.is_zero() ? split.parts.erase(next) : next + 1;
  }
  for (const TenantId payer : payers) {
    const auto found = split.parts.find(payer);
    const Bytes before = found == split.parts.end() ? Bytes{} : found->second;
    if (before == equal) continue;
    if (ledger_.limiting_share(payer, split.holder, split.device, equal - before)) {
      settled.is_short = true;
      continue;
    }
    split.parts[payer] = equal;
    change(split, payer, before, equal);
    settled.changed = true;
  }
  if (split.parts.empty()) splits_.erase(extent.lease);
  return settled;
}

// The others pay less then: those above it that are above the holder, too, pay more in all.
TenantId Shares::admit(const Extent& extent, Payers payers, TenantId newcomer) {
  const DeviceIndex device = extent.device;
  std::vector<std::pair<Bytes, Bytes>> before;
  for (TenantId id = newcomer; id; id = ledger_.parent(id))
    before.emplace_back(ledger_.used(id, device), ledger_.used_and_kept(id, device));
  payers.insert(newcomer);
  settle(extent, payers);
  if (!of(extent.lease).contains(newcomer)) {
    const Bytes equal{extent.size.count / (payers.size() + 1)};
    return ledger_.limiting_share(newcomer, extent.holder, device, equal);
  }
  auto was = before.begin();
  for (TenantId id = newcomer; id; id = ledger_.parent(id), ++was) {
    const Bytes limit = ledger_.quota(id, device).limit;
    const Bytes used = ledger_.used(id, device);
    const Bytes with_kept = ledger_.used_and_kept(id, device);
    const bool is_over = used > limit || (with_kept > limit && with_kept > was->second);
    if (used > was->first && is_over) return id;
  }
  return {};
}

void Shares::drop(LeaseId lease) {
  const auto found = splits_.find(lease);
  if (found == splits_.end()) return;
  for (const auto& [payer, bytes] : found->second.parts) change(found->second, payer, bytes, {});
  splits_.erase(found);
}

Shares::Standing Shares::take_all() {
  Standing standing;
  for (const auto& [lease, split] : splits_) {
    for (const auto& [payer, bytes] : split.parts)
      for (TenantId id = payer; id; id = ledger_.parent(id))
        standing.beyond.try_emplace({id, split.device}, excess(id, split.device));
    standing.parts.emplace(lease, split.parts);
  }
  while (!splits_.empty()) drop(splits_.begin()->first);
  return standing;
}

void Shares::resume(const Extent& extent, const Parts& parts) {
  if (parts.empty()) return;
  const Split& split =
      splits_.emplace(extent.lease, Split{extent.holder, extent.device, parts}).first->second;
  for (const auto& [payer, bytes] : parts) change(split, payer, {}, bytes);
}

// What one sheds its holder pays, which may be more than that has room for beside its own parts.
void Shares::shed(const Standing& before) {
  std::vector<LeaseId> leases;
  for (const auto& [lease, split] : splits_) leases.push_back(lease);
  std::ranges::sort(leases, std::greater());
  for (bool changed = true; changed;) {
    changed = false;
    for (const LeaseId lease : leases) changed |= shed(lease, before);
  }
}

bool Shares::shed(LeaseId lease, const Standing& before) {
  const auto found = splits_.find(lease);
  if (found == splits_.end()) return false;
  Split& split = found->second;
  const std::size_t there = split.parts.size();
  for (auto next = split.parts.begin(); next != split.parts.end();) {
    if (is_beyond(split, next->first, before)) {
      change(split, next->first, next->second, {});
      next = split.parts.erase(next);
    } else {
      ++next;
    }
  }
  const bool changed = split.parts.size() != there;
  if (split.parts.empty()) splits_.erase(found);
  return changed;
}

// Those above both of them have no more and no less by the part.
bool Shares::is_beyond(const Split& split, TenantId payer, const Standing& before) const {
  for (TenantId id = payer; id; id = ledger_.parent(id)) {
    for (TenantId above = split.holder; above; above = ledger_.parent(above))
      if (above == id) return false;
    const auto was = before.beyond.find({id, split.device});
    const auto [paid, kept] = was == before.beyond.end() ? Standing::Excess{} : was->second;
    const auto [paid_now, kept_now] = excess(id, split.device);
    if (paid_now > paid || kept_now > kept) return true;
  }
  return false;
}

Shares::Standing::Excess Shares::excess(TenantId tenant, DeviceIndex device) const {
  const Bytes limit = ledger_.quota(tenant, device).limit;
  return {ledger_.used(tenant, device).minus(limit), ledger_.used_and_kept(tenant, device).minus(limit)};
}

const Shares::Parts& Shares::of(LeaseId lease) const {
  static const Parts none;
  const auto found = splits_.find(lease);
  return found == splits_.end() ? none : found->second.parts;
}

Bytes Shares::paid_by_others(LeaseId lease) const {
  Bytes sum;
  for (const auto& [payer, bytes] : of(lease)) sum += bytes;
  return sum;
}

void Shares::change(const Split& split, TenantId payer, Bytes before, Bytes after) {
  if (before == after) return;
  ledger_.share(split.holder, payer, split.device, after.minus(before), before.minus(after));
}

}  // namespace gpumem::core
