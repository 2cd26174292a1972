#pragma once
#include <algorithm>
#include <functional>
#include <map>

#include "daemon/core/arbiter.h"

namespace gpumem::core {

enum class ReclaimCause { kClaims, kFairness, kDebt };

/// What a tenant's sessions should give back of a device, and what for.
struct ReclaimTarget {
  Bytes claims;    ///< for requests within others' guarantees
  Bytes fairness;  ///< besides, for the next request, which would still have less than this tenant
  Bytes debt;      ///< beyond the limit of the tenant, or of one above it
  Bytes declared;  ///< beyond such a limit by what the tenant itself declared
  Bytes& operator[](ReclaimCause cause) {
    return cause == ReclaimCause::kClaims ? claims : cause == ReclaimCause::kFairness ? fairness : debt;
  }
  /// Memory of the pool. One return serves claims and debts.
  Bytes pool() const { return std::max(claims, debt) + fairness; }
  /// What ends a session that does not give it back, where the policy says so.
  Bytes forced() const { return std::max(claims, debt) + declared; }
};

using ReclaimTargets = std::map<TenantId, ReclaimTarget>;

/// Who should give back what of one device.
struct ReclaimPlan {
  ReclaimTargets targets;
  /// What the claims that wait need beyond what is free or coming.
  Bytes claims_lack;
  /// What claims need that wait below a limit without room for them (Ledger::overcommitted), whatever is
  /// free.
  Bytes held_lack;
  Bytes lack() const { return std::max(claims_lack, held_lack); }
};

/// What the sessions of a tenant should give back for a request of one of them.
struct MateTarget {
  RequestId request;
  Bytes bytes;
};
using MateTargets = std::map<TenantId, MateTarget>;

/// What is charged to those below a tenant (none: to all), but known to be free soon.
using Coming = std::function<Bytes(TenantId)>;

/// What cannot be read from the ledger.
struct ReclaimFacts {
  Bytes granularity;
  Coming coming;
  /// What the sessions of a leaf could give back of the pool at most, for that cause.
  std::function<Bytes(TenantId, ReclaimCause)> givable;
  /// What leaves have declared, or were seen to hold past the broker, as far as somebody answers for it.
  const std::map<TenantId, Bytes>& declared;
};

/// Decides who is asked to give back memory of `device` for the requests that wait: docs/arbiter.md has the
/// rules. Takes time by the number of those asked; none if nobody waits.
/// `debts`  what is asked for debts; the plan has it too, and fairness asks for nothing that it brings.
ReclaimPlan plan_reclaim(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device,
                         const ReclaimFacts& facts, ReclaimTargets debts = {});

/// What nobody else is asked for by `plan`, but sessions of the request's own tenant could give: for the next
/// request, for those that a limit above their tenant holds back, and for those that their own tenant has no
/// room for; of the last the oldest.
MateTargets plan_mates(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device, const Coming& coming,
                       const ReclaimPlan& plan);

/// Who is asked for what `debtor` uses beyond its limit: those who declared it for what is declared, and for
/// the rest those below it as for requests.
ReclaimTargets plan_debt(const Ledger& ledger, DeviceIndex device, TenantId debtor,
                         const ReclaimFacts& facts);

/// What the request lacks of the device to be granted, where `there` is what is free or coming.
Bytes lack_of(const Ledger& ledger, const Arbiter& arbiter, const Request& request, DeviceIndex device,
              Bytes there);

}  // namespace gpumem::core
