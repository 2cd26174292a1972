#pragma once
#include <algorithm>
#include <functional>
#include <map>

#include "daemon/core/arbiter/arbiter.h"

namespace gpumem::core {

enum class ReclaimCause { kClaims, kFairness, kDebt };

constexpr const char* words_of(ReclaimCause cause) {
  switch (cause) {
    case ReclaimCause::kClaims: return "others wait for what they are guaranteed";
    case ReclaimCause::kFairness: return "others have a smaller share and wait";
    case ReclaimCause::kDebt: return "its tenant uses more than its limit";
  }
  return "";
}

/// The amounts of a device that a tenant's sessions should give back, by cause.
struct ReclaimTarget {
  Bytes claims;    ///< for requests within others' guarantees
  Bytes fairness;  ///< on top, for the next request, whose tenant would still have less than this one
  Bytes debt;      ///< beyond the limit of the tenant, or of one above it
  Bytes declared;  ///< beyond such a limit by what the tenant itself declared
  Bytes job_debt;  ///< beyond the limit of a job, which keeps nothing from others: nothing follows
  Bytes job_declared;
  Bytes& operator[](ReclaimCause cause) {
    return cause == ReclaimCause::kClaims ? claims : cause == ReclaimCause::kFairness ? fairness : debt;
  }
  Bytes any_debt() const { return std::max(debt, job_debt); }
  /// Memory of the pool. One return serves claims and debts.
  Bytes pool() const { return std::max(claims, any_debt()) + fairness; }
  /// Declared memory.
  Bytes besides() const { return std::max(declared, job_declared); }
  /// A session that does not return this amount is terminated, if the policy says so.
  Bytes forced() const { return std::max(claims, debt) + declared; }
};

using ReclaimTargets = std::map<TenantId, ReclaimTarget>;

/// The amounts that each tenant should give back of one device.
struct ReclaimPlan {
  ReclaimTargets targets;
  /// The need of the waiting claims beyond the free and the coming memory.
  Bytes claims_lack;
  /// The need of claims below a limit that has no room for them (Ledger::overcommitted). Free memory does
  /// not help them.
  Bytes held_lack;
  Bytes lack() const { return std::max(claims_lack, held_lack); }
};

/// The amount that the sessions of a tenant should give back for a request of one of them.
struct SiblingTarget {
  RequestId request;
  Bytes bytes;
};
using SiblingTargets = std::map<TenantId, SiblingTarget>;

/// Memory that is charged at or below a tenant (none: to anybody) and will be free soon.
using Coming = std::function<Bytes(TenantId)>;

/// Facts that the ledger does not have.
struct ReclaimFacts {
  Bytes granularity;
  Coming coming;
  /// The most that the sessions of a leaf could give back of the pool, for a cause.
  std::function<Bytes(TenantId, ReclaimCause)> givable;
  /// For debts: memory that leaves have declared, or were seen to hold past the broker, if a session answers
  /// for it.
  const std::map<TenantId, Bytes>& declared;
  /// Of `coming`: what jobs have reserved again then, and others' claims do not get.
  Coming staying = [](TenantId) { return Bytes{}; };
};

/// Decides which tenants are asked for memory of `device` for the waiting requests: docs/arbiter.md has the
/// rules. Takes time by the number of tenants that are asked; none if no request waits.
/// `debts`  amounts that are asked for debts. They become part of the plan, and fairness does not ask for the
///          same memory again.
ReclaimPlan plan_reclaim(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device,
                         const ReclaimFacts& facts, ReclaimTargets debts = {});

/// Asks the sessions of the request's own tenant for the need that `plan` does not cover. The requests are
/// the next one, those that a limit above their tenant holds back, and the oldest of those that their own
/// tenant has no room for.
SiblingTargets plan_siblings(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device,
                             const Coming& coming, const ReclaimPlan& plan);

/// Spreads the use of `debtor` beyond its limit. Declared memory is asked of the tenants that declared it,
/// the rest of the tenants below the debtor, in the order that holds for requests.
ReclaimTargets plan_debt(const Ledger& ledger, DeviceIndex device, TenantId debtor,
                         const ReclaimFacts& facts);

/// The bytes of the device that the request lacks, if `there` is the free and the coming memory.
Bytes lack_of(const Ledger& ledger, const Arbiter& arbiter, const Request& request, DeviceIndex device,
              Bytes there);

}  // namespace gpumem::core
