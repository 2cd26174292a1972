#pragma once
#include <array>
#include <unordered_map>
#include <vector>

#include "daemon/core/types.h"

namespace gpumem::core {

/// What a charged byte is doing. Every state counts against the limit.
enum class Charge : std::size_t {
  kOffered,      ///< granted, the client has not yet said that it is mapped
  kActive,       ///< mapped by a client
  kReturning,    ///< given back, being freed
  kQuarantined,  ///< given back, but the driver has not proved it free
};
inline constexpr std::size_t kCharges = 4;

/// Bytes by what they are doing.
struct Charges {
  std::array<Bytes, kCharges> by_state{};

  Bytes& operator[](Charge state) { return by_state[static_cast<std::size_t>(state)]; }
  Bytes operator[](Charge state) const { return by_state[static_cast<std::size_t>(state)]; }
  Bytes total() const;
  /// What is not on its way back.
  Bytes held() const { return (*this)[Charge::kOffered] + (*this)[Charge::kActive]; }
};

/// The bytes of every device and tenant: the only truth about who is charged.
///
/// Invariants, after every call:
///  - on every device, the sum of all charges is at most the pool;
///  - a tenant's charge never grows past its limit (it may be over a limit that was lowered);
///  - memory that unmet guarantees need is never given to others.
/// A call that would break one, or takes back more than there is, is a bug of the caller and aborts.
class Ledger {
 public:
  enum class Verdict {
    kFits,
    kOverLimit,  ///< the tenant would pass its ceiling: only its own memory, given back, can help
    kNoMemory,   ///< not free, or kept for others' guarantees
  };

  explicit Ledger(std::vector<Bytes> pools);

  /// `quotas`  one a device.
  TenantId add_tenant(std::vector<Quota> quotas);
  void set_quotas(TenantId tenant, std::vector<Quota> quotas);
  /// Nothing may be charged to the tenant.
  void remove_tenant(TenantId tenant);

  Verdict verdict(TenantId tenant, DeviceIndex device, Bytes bytes) const;
  /// Charges `bytes` as offered if the verdict is kFits: check and reservation are one step.
  Verdict reserve(TenantId tenant, DeviceIndex device, Bytes bytes);
  void move(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from, Charge to);
  void release(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from);

  /// Bytes of the pool that the driver does not give at present: nobody can be granted them.
  void set_missing(DeviceIndex device, Bytes bytes);
  Bytes missing(DeviceIndex device) const { return devices_[device].missing; }

  std::size_t device_count() const { return devices_.size(); }
  /// Grows with every change of what the figures of devices and tenants are made of.
  std::uint64_t revision() const { return revision_; }
  Bytes pool(DeviceIndex device) const { return devices_[device].pool; }
  Bytes free(DeviceIndex device) const;
  const Charges& charges(DeviceIndex device) const { return devices_[device].charges; }
  const Charges& charges(TenantId tenant, DeviceIndex device) const {
    return account(tenant, device).charges;
  }
  const Quota& quota(TenantId tenant, DeviceIndex device) const { return account(tenant, device).quota; }
  bool is_idle(TenantId tenant) const;
  /// Sum of all tenants' guarantees.
  Bytes guaranteed(DeviceIndex device) const { return devices_[device].guaranteed; }
  /// What the unmet guarantees of all tenants but `tenant` need.
  Bytes kept_for_others(TenantId tenant, DeviceIndex device) const;
  /// The most that `tenant` can ever have: its limit, or what the others' guarantees leave of the pool.
  Bytes ceiling(TenantId tenant, DeviceIndex device) const;
  /// What `tenant` could be granted now.
  Bytes available(TenantId tenant, DeviceIndex device) const;
  bool within_guarantee(TenantId tenant, DeviceIndex device, Bytes bytes) const;

 private:
  struct Account {
    Quota quota;
    Charges charges;
    Bytes unmet() const { return quota.guarantee.minus(charges.total()); }
  };
  struct Device {
    Bytes pool;
    Bytes missing;
    Bytes guaranteed;
    Bytes unmet;  ///< sum of all tenants' unmet guarantees
    Charges charges;
  };

  const Account& account(TenantId tenant, DeviceIndex device) const;
  // Applies `change` to one account and keeps the device's sums in step.
  template <class Change>
  void update(TenantId tenant, DeviceIndex device, Change&& change);

  std::vector<Device> devices_;
  std::unordered_map<TenantId, std::vector<Account>> tenants_;
  IdSource<TenantId> ids_;
  std::uint64_t revision_ = 0;
};

}  // namespace gpumem::core
