#include "daemon/core/shares.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace gpumem::core {

void Shares::settle(const Extent& extent, const Payers& payers) {
  const auto known = splits_.find(extent.lease);
  if (known == splits_.end() && payers.empty()) return;
  Split& split = known != splits_.end()
                     ? known->second
                     : splits_.emplace(extent.lease, Split{extent.holder, extent.device, {}}).first->second;
  const Bytes equal{extent.size.count / (payers.size() + 1)};
  // What becomes less makes room, perhaps below the same limit.
  for (auto next = split.parts.begin(); next != split.parts.end();) {
    const Bytes before = next->second;
    next->second = payers.contains(next->first) ? std::min(before, equal) : Bytes{};
    change(split, next->first, before, next->second);
    next = next->second.is_zero() ? split.parts.erase(next) : next + 1;
  }
  for (const TenantId payer : payers) {
    const auto found = split.parts.find(payer);
    const Bytes before = found == split.parts.end() ? Bytes{} : found->second;
    if (before == equal) continue;
    if (ledger_.limiting_share(payer, split.holder, split.device, equal - before)) continue;
    split.parts[payer] = equal;
    change(split, payer, before, equal);
  }
  if (split.parts.empty()) splits_.erase(extent.lease);
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

void Shares::drop_all() {
  while (!splits_.empty()) drop(splits_.begin()->first);
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
