#include "daemon/core/ledger.h"

#include <algorithm>

#include "base/check.h"

namespace gpumem::core {

Bytes Charges::total() const {
  Bytes sum;
  for (const Bytes bytes : by_state) sum += bytes;
  return sum;
}

Ledger::Ledger(std::vector<Bytes> pools) {
  for (const Bytes pool : pools)
    devices_.push_back({.pool = pool, .missing = {}, .guaranteed = {}, .unmet = {}, .charges = {}});
}

TenantId Ledger::add_tenant(std::vector<Quota> quotas) {
  const TenantId tenant = ids_.next();
  tenants_.emplace(tenant, std::vector<Account>(devices_.size()));
  set_quotas(tenant, std::move(quotas));
  return tenant;
}

void Ledger::set_quotas(TenantId tenant, std::vector<Quota> quotas) {
  GPUMEM_CHECK(quotas.size() == devices_.size(), "one quota a device");
  for (DeviceIndex i = 0; i < devices_.size(); ++i) {
    update(tenant, i, [&](Account& account) { account.quota = quotas[i]; });
  }
}

void Ledger::remove_tenant(TenantId tenant) {
  GPUMEM_CHECK(is_idle(tenant), "a tenant with charges cannot go");
  set_quotas(tenant, std::vector<Quota>(devices_.size()));
  tenants_.erase(tenant);
}

Ledger::Verdict Ledger::verdict(TenantId tenant, DeviceIndex device, Bytes bytes) const {
  const Account& one = account(tenant, device);
  if (bytes > ceiling(tenant, device).minus(one.charges.total())) return Verdict::kOverLimit;
  if (bytes > free(device).minus(kept_for_others(tenant, device))) return Verdict::kNoMemory;
  return Verdict::kFits;
}

Ledger::Verdict Ledger::reserve(TenantId tenant, DeviceIndex device, Bytes bytes) {
  const Verdict answer = verdict(tenant, device, bytes);
  if (answer != Verdict::kFits) return answer;
  update(tenant, device, [&](Account& account) { account.charges[Charge::kOffered] += bytes; });
  devices_[device].charges[Charge::kOffered] += bytes;
  GPUMEM_CHECK(devices_[device].charges.total() <= devices_[device].pool, "charges within the pool");
  return Verdict::kFits;
}

void Ledger::move(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from, Charge to) {
  update(tenant, device, [&](Account& account) {
    account.charges[from] -= bytes;
    account.charges[to] += bytes;
  });
  devices_[device].charges[from] -= bytes;
  devices_[device].charges[to] += bytes;
}

void Ledger::release(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from) {
  update(tenant, device, [&](Account& account) { account.charges[from] -= bytes; });
  devices_[device].charges[from] -= bytes;
}

void Ledger::set_missing(DeviceIndex device, Bytes bytes) {
  GPUMEM_CHECK(bytes <= devices_[device].pool, "missing bytes are bytes of the pool");
  if (devices_[device].missing != bytes) ++revision_;
  devices_[device].missing = bytes;
}

Bytes Ledger::free(DeviceIndex device) const {
  const Device& one = devices_[device];
  return one.pool.minus(one.charges.total()).minus(one.missing);
}

bool Ledger::is_idle(TenantId tenant) const {
  const auto found = tenants_.find(tenant);
  GPUMEM_CHECK(found != tenants_.end(), "tenant known");
  return std::all_of(found->second.begin(), found->second.end(),
                     [](const Account& account) { return account.charges.total().is_zero(); });
}

Bytes Ledger::kept_for_others(TenantId tenant, DeviceIndex device) const {
  return devices_[device].unmet - account(tenant, device).unmet();
}

Bytes Ledger::ceiling(TenantId tenant, DeviceIndex device) const {
  const Quota& own = account(tenant, device).quota;
  return std::min(own.limit, pool(device).minus(guaranteed(device) - own.guarantee));
}

Bytes Ledger::available(TenantId tenant, DeviceIndex device) const {
  const Account& one = account(tenant, device);
  return std::min(one.quota.limit.minus(one.charges.total()),
                  free(device).minus(kept_for_others(tenant, device)));
}

bool Ledger::within_guarantee(TenantId tenant, DeviceIndex device, Bytes bytes) const {
  return bytes <= account(tenant, device).unmet();
}

const Ledger::Account& Ledger::account(TenantId tenant, DeviceIndex device) const {
  const auto found = tenants_.find(tenant);
  GPUMEM_CHECK(found != tenants_.end() && device < found->second.size(), "tenant and device known");
  return found->second[device];
}

template <class Change>
void Ledger::update(TenantId tenant, DeviceIndex device, Change&& change) {
  auto& one = const_cast<Account&>(account(tenant, device));
  Device& sums = devices_[device];
  sums.unmet -= one.unmet();
  sums.guaranteed -= one.quota.guarantee;
  change(one);
  sums.unmet += one.unmet();
  sums.guaranteed += one.quota.guarantee;
  ++revision_;
}

}  // namespace gpumem::core
