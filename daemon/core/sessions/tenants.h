#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/ledger/ledger.h"
#include "daemon/core/sessions/records.h"
#include "daemon/core/words/policy.h"

namespace gpumem::core {

/// The tree of tenants by name, and the sessions of each. Their quotas and their place in the tree are in the
/// ledger.
///
/// A tenant is a leaf of the tree until it has a job. Then there are leaves below it: one for each job, and
/// one for the rest of its sessions, for charges outside the pool, and for processes that are no clients.
/// Leaves are no tenants for anybody else: by name, only the tenant is found.
///
/// Invariant  a tenant is configured, or has sessions, or is charged; each is in the ledger exactly once.
class Tenants {
 public:
  /// The rule of each tenant, by name.
  using Rules = std::map<std::string, TenantRule>;

  explicit Tenants(Ledger& ledger) : ledger_(ledger) {}

  /// The tenant of that name, made if need be. Errors  kResourceExhausted: no room for its guarantee.
  Result<TenantId> admit(const Policy& policy, const TenantMatch& match);
  /// Forgets a tenant that nothing keeps; does nothing to others.
  void retire(TenantId id);
  /// Where sessions in no job, and charges outside the pool, are charged: the tenant itself, or its rest.
  TenantId leaf_of(TenantId tenant) const { return at(tenant).rest ? at(tenant).rest : tenant; }
  /// The tenant that a leaf is below; of a tenant itself.
  TenantId owner_of(TenantId leaf) const { return at(leaf).owner; }
  /// Of one with a limit: whether it is a job's. (A tenant's rest has none.)
  bool is_job(TenantId limited) const { return owner_of(limited) != limited; }
  /// Gives a tenant without leaves a leaf for the rest, which has all its sessions and charges from now on.
  TenantId divide(TenantId tenant);
  /// A leaf for a job, below a tenant that is divided.
  TenantId add_job(TenantId tenant, std::string name, Quotas quotas);
  void end_job(TenantId leaf);
  /// Puts the leaf of a job below another tenant, which is divided.
  void move_job(TenantId leaf, TenantId to);
  /// The tenant's sessions, in all its leaves.
  std::vector<SessionId> sessions_of(TenantId tenant) const;
  void join(TenantId tenant, SessionId session);
  void leave(TenantId tenant, SessionId session);

  /// The configured rules, and those of other tenants: `members`, by the rule of `policy` that covers them.
  Rules rules_under(const Policy& policy, const Rules& members) const;
  /// Errors  kFailedPrecondition: one of `members` would become the parent of others.
  static Result<void> check_parents(const Rules& rules, const Rules& members);
  /// The tenants whose quotas `rules` change.
  std::vector<std::string> changed_under(const Rules& rules) const;
  /// Makes and changes tenants; those without a rule stay until retire_all_but().
  void put_in_force(const Rules& rules, const std::vector<TenantRule>& configured);
  /// What is still charged to a tenant without a rule stays so. The tenant is promised nothing.
  void retire_all_but(const Rules& rules);

  const Tenant* find(const std::string& name) const;
  /// The tenant exists.
  const Tenant& at(TenantId id) const { return tenants_.at(id); }
  const std::string& name(TenantId id) const { return tenants_.at(id).name; }
  bool contains(TenantId id) const { return tenants_.contains(id); }
  /// Whether `tenant` is `of`, or below it. None: everybody is below it.
  bool is_below(TenantId tenant, TenantId of) const;
  /// The tenant and all below it.
  std::vector<TenantId> with_members(TenantId id) const;
  const std::map<std::string, TenantId>& by_name() const { return by_name_; }
  const std::unordered_map<TenantId, Tenant>& all() const { return tenants_; }

 private:
  TenantId add(const std::string& name, Quotas quotas, TenantId parent);
  TenantId add_leaf(TenantId tenant, std::string name, Quotas quotas);
  Result<void> check_room(const Policy& policy, const TenantMatch& match) const;
  TenantId parent_of(const TenantMatch& match) const;
  bool has_own_charges(TenantId id) const;
  void count_sessions();

  Ledger& ledger_;
  std::unordered_map<TenantId, Tenant> tenants_;
  std::map<std::string, TenantId> by_name_;
};

}  // namespace gpumem::core
