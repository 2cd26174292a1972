#include "daemon/core/reclaim/reclaim_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "daemon/core/words/algorithms.h"

namespace gpumem::core {
namespace {

// After this many tenants in a row with nothing to give, no others are tried: their shares are smaller.
constexpr std::size_t kMostInVain = 64;
// At most this many requests that their own tenants have no room for are visited, since every event does so.
constexpr std::size_t kMostServed = 64;

// The children of a node that may be drawn on.
struct Among {
  TenantId except;                        ///< the one that asks
  std::uint32_t priority = kMaxPriority;  ///< theirs is at most this
  double floor = 0;                       ///< the share that children of exactly that priority keep
};

class Planner {
 public:
  // The plan so far: the amounts by leaf and cause, and the bytes of the pool drawn from each node.
  struct Asked {
    ReclaimTargets targets;
    std::map<TenantId, Bytes> drawn;
  };

  Planner(const Ledger& ledger, DeviceIndex device, const ReclaimFacts& facts, ReclaimTargets targets = {})
      : ledger_(ledger), device_(device), facts_(facts), asked_{std::move(targets), {}} {}

  const Asked& asked() const { return asked_; }
  void restore(Asked asked) { asked_ = std::move(asked); }
  ReclaimTargets take_targets() { return std::move(asked_.targets); }

  // Asks the tenants below `node` for `amount`, or for all that they have. Returns the amount asked for.
  Bytes collect(TenantId node, Bytes amount, ReclaimCause cause, const Among& among = {}) {
    Bytes collected;
    const auto& borrowers = ledger_.borrowers(node, device_);
    for (auto it = borrowers.begin(); it != borrowers.end() && collected < amount;) {
      const std::uint32_t priority = it->priority;
      if (priority > among.priority) break;
      const Range range{it, borrowers.end(), priority, priority == among.priority ? among.floor : 0,
                        among.except};
      collected += level(range, amount - collected, cause);
      it = borrowers.lower_bound({priority + 1, std::numeric_limits<double>::infinity(), {}});
    }
    return collected;
  }

  Bytes ask_leaf(TenantId leaf, Bytes amount, Bytes most, ReclaimCause cause) {
    const auto found = asked_.targets.find(leaf);
    const Bytes before = found == asked_.targets.end() ? Bytes{} : before_of(found->second, cause);
    const Bytes part = std::min(amount, std::min(most, facts_.givable(leaf, cause)).minus(before));
    if (!part.is_zero()) asked_.targets[leaf][cause] += part;
    return part;
  }

  // Counts the amounts of debts beyond those of claims as drawn, so that fairness compares the shares of the
  // rest.
  void draw_debts() {
    for (const auto& [leaf, target] : asked_.targets) {
      const Bytes beyond = target.any_debt().minus(target.claims);
      for (TenantId node = leaf; node && !beyond.is_zero(); node = ledger_.parent(node))
        asked_.drawn[node] += beyond;
    }
  }

 private:
  // A claim and a debt are each asked for in full, and one return serves both. Fairness comes on top.
  static Bytes before_of(const ReclaimTarget& target, ReclaimCause cause) {
    if (cause == ReclaimCause::kFairness) return target.pool();
    return cause == ReclaimCause::kClaims ? target.claims : target.debt;
  }

  // The children of one priority whose share is over a floor, from the highest share on.
  struct Range {
    Ledger::Ranking::const_iterator begin;
    Ledger::Ranking::const_iterator end;  // of all priorities
    std::uint32_t priority;
    double floor;
    TenantId except;
    bool holds(const Ledger::Borrower& one) const { return one.priority == priority && one.share > floor; }
  };

  // Brings the highest shares down to one level, as low as `amount` needs, but not below the floor. The
  // amount may stay short because of rounding, or of children with nothing to give; then the other children
  // are asked in their order.
  Bytes level(const Range& range, Bytes amount, ReclaimCause cause) {
    double level = range.floor;
    const auto drawn = highest(range, amount, level);
    Bytes collected;
    for (const Ledger::Borrower& one : drawn)
      collected += draw(one.tenant, std::min(over(one, level, range), amount - collected), cause);
    std::size_t in_vain = 0;
    for (auto it = range.begin; it != range.end && range.holds(*it) && collected < amount; ++it) {
      if (it->tenant == range.except) continue;
      const Bytes part = draw(it->tenant, std::min(over(*it, range.floor, range), amount - collected), cause);
      collected += part;
      if (part.is_zero() && ++in_vain == kMostInVain) break;
    }
    return collected;
  }

  // The children that have to come down, and in `level` the share that they come down to. Each gives at least
  // one extent, which bounds their number.
  std::vector<Ledger::Borrower> highest(const Range& range, Bytes amount, double& level) const {
    std::vector<Ledger::Borrower> drawn;
    const std::uint64_t most = amount.count / facts_.granularity.count + 1;
    double borrowed = 0;
    double weights = 0;
    for (auto it = range.begin; it != range.end && range.holds(*it) && drawn.size() < most; ++it) {
      if (it->tenant == range.except) continue;
      if (!drawn.empty() && level >= it->share) break;
      const double weight = weight_of(it->tenant);
      drawn.push_back(*it);
      borrowed += net_share(it->tenant) * weight;
      weights += weight;
      level = std::max(range.floor, (borrowed - static_cast<double>(amount.count)) / weights);
    }
    return drawn;
  }

  double weight_of(TenantId tenant) const { return ledger_.quota(tenant, device_).weight; }

  // Without memory that is on its way back. Quarantined memory counts: the session that pins it answers for
  // it.
  Bytes net_borrowed(TenantId tenant) const {
    const Bytes returning = ledger_.charges(tenant, device_)[Charge::kReturning];
    return ledger_.borrowed(tenant, device_).minus(returning.minus(facts_.staying(tenant)));
  }
  // The burst that remains when all memory on its way back, and all asked for so far, has left the tenant.
  Bytes burst_left(TenantId tenant) const {
    const Bytes leaving = facts_.coming(tenant).minus(facts_.staying(tenant));
    return ledger_.borrowed(tenant, device_).minus(leaving + drawn_of(tenant));
  }
  // The share after all memory asked for so far has come back.
  double net_share(TenantId tenant) const {
    return ledger_.quota(tenant, device_).share_of(net_borrowed(tenant).minus(drawn_of(tenant)));
  }

  // The bytes of the node above a share, in whole extents. Rounded down if a floor must be kept, else up.
  Bytes over(const Ledger::Borrower& one, double share, const Range& range) const {
    const double unit = static_cast<double>(facts_.granularity.count);
    const double units = (net_share(one.tenant) - share) * weight_of(one.tenant) / unit;
    const double whole = range.floor > 0 ? std::floor(units + 1e-9) : std::ceil(units - 1e-9);
    return {static_cast<std::uint64_t>(std::max(0.0, whole)) * facts_.granularity.count};
  }

  Bytes draw(TenantId tenant, Bytes amount, ReclaimCause cause) {
    if (amount.is_zero()) return {};
    Bytes drawn;
    const auto& members = ledger_.borrowers(tenant, device_);
    if (members.empty()) {
      drawn = ask_leaf(tenant, amount, net_borrowed(tenant), cause);
    } else {
      // Parts have no guarantee that would leave them something: the burst is that of the whole.
      const bool has_parts = ledger_.whole(members.begin()->tenant) == tenant;
      if (has_parts && cause != ReclaimCause::kDebt) amount = std::min(amount, burst_left(tenant));
      drawn = collect(tenant, amount, cause);
    }
    asked_.drawn[tenant] += drawn;
    return drawn;
  }
  Bytes drawn_of(TenantId tenant) const {
    const auto found = asked_.drawn.find(tenant);
    return found == asked_.drawn.end() ? Bytes{} : found->second;
  }

  const Ledger& ledger_;
  DeviceIndex device_;
  const ReclaimFacts& facts_;
  Asked asked_;
};

// Asks the tenants below `top` that would still have more than the request's tenant. They are asked for the
// whole amount or for nothing: a request that would take more than its share waits until memory comes back by
// itself.
void plan_fairness(const Ledger& ledger, DeviceIndex device, const Request& request, Bytes open, TenantId top,
                   Planner& planner) {
  if (open.is_zero()) return;
  Planner::Asked before = planner.asked();
  Bytes more = needed_of(ledger, request, device);  // that the node would have then
  for (TenantId node = request.tenant; node != top && !open.is_zero(); node = ledger.parent(node)) {
    const Quota& quota = ledger.quota(node, device);
    const Bytes after = ledger.burst(node, device) + more;
    const double share = quota.share_of(after);
    const Bytes part =
        planner.collect(ledger.parent(node), open, ReclaimCause::kFairness, {node, quota.priority, share});
    open -= part;
    more = more.minus(part);
  }
  if (!open.is_zero()) planner.restore(std::move(before));
}

bool is_below(const Ledger& ledger, TenantId tenant, TenantId above) {
  while (tenant && tenant != above) tenant = ledger.parent(tenant);
  return tenant == above;
}

// The bytes by which the use of `tenant` falls when a leaf below it has returned its target. Memory outside
// the pool that exceeds a limit between the two does not count for `tenant`, and neither does its return.
Bytes relieves(const Ledger& ledger, DeviceIndex device, TenantId leaf, const ReclaimTarget& target,
               TenantId tenant) {
  Bytes less = target.pool() + target.besides();
  for (TenantId node = leaf; node != tenant; node = ledger.parent(node))
    less = less.minus(ledger.outside(node, device) - ledger.outside_above(node, device));
  return less;
}

// The need of the request that the limit of `tenant`, above it, holds back once `targets` have come back.
// Every return from below `tenant` counts, for whichever cause, since the excess includes the tenant's debt.
Bytes lack_below(const Ledger& ledger, DeviceIndex device, TenantId tenant, const Request& request,
                 const Coming& coming, const ReclaimTargets& targets) {
  const Bytes needed = needed_of(ledger, request, device);
  // Declared memory does not obstruct a claim below the tenant.
  const bool only_pool = needed <= ledger.claimable(request.tenant, device, tenant);
  Bytes open = ledger.excess_at(tenant, request.tenant, device, needed).minus(coming(tenant));
  for (const auto& [leaf, target] : targets) {
    if (is_below(ledger, leaf, tenant))
      open = open.minus(only_pool ? target.pool() : relieves(ledger, device, leaf, target, tenant));
  }
  return open;
}

// If a tenant's own limit holds back all requests below it, only memory from below it helps.
void plan_held_back(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device,
                    const ReclaimFacts& facts, Planner& planner) {
  for (const auto& [tenant, id] : arbiter.held_back(device)) {
    if (arbiter.is_claim(id, device)) continue;
    const Request& request = *arbiter.find(id);
    const Bytes open = lack_below(ledger, device, tenant, request, facts.coming, planner.asked().targets);
    plan_fairness(ledger, device, request, open, tenant, planner);
  }
}

// The need of a request of `tenant`, or of a part of it, that the tenant's own limit or reach has no room
// for. Amounts that the plan asks of the tenant make room as well; declared memory makes room in its limit
// alone.
Bytes lack_within(const Ledger& ledger, DeviceIndex device, TenantId tenant, Bytes needed,
                  const Coming& coming, const ReclaimPlan& plan) {
  Bytes pool, declared;
  for (const auto& [leaf, target] : plan.targets) {
    if (!is_below(ledger, leaf, tenant)) continue;
    pool += target.pool();
    declared += target.besides();
  }
  const Bytes over_limit = (ledger.used(tenant, device) + needed).minus(ledger.quota(tenant, device).limit);
  const Bytes over_reach =
      (ledger.charges(tenant, device).total() + needed).minus(ledger.reach(tenant, device));
  return std::max(over_limit.minus(declared), over_reach).minus(coming(tenant) + pool);
}

// The need of the request that its own tenant has no room for. Only the tenant's own sessions can help.
Bytes lack_within(const Ledger& ledger, DeviceIndex device, const Request& request, const Coming& coming,
                  const ReclaimPlan& plan) {
  const Bytes needed = needed_of(ledger, request, device);
  const TenantId leaf = request.tenant;
  const TenantId whole = ledger.whole(leaf);
  const Bytes lack = lack_within(ledger, device, leaf, needed, coming, plan);
  return whole == leaf ? lack : std::max(lack, lack_within(ledger, device, whole, needed, coming, plan));
}

// Plans for claims below a tenant whose own limit has no room for them: free memory does not help these. A
// return from a tenant below it counts for the inner and for the outer limit. Returns the amount asked for.
Bytes plan_overcommitted(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device,
                         const ReclaimFacts& facts, Planner& planner, ReclaimPlan& plan) {
  Bytes collected;
  for (const TenantId tenant : ledger.overcommitted(device)) {
    Bytes sum = ledger.charges(tenant, device).total();
    for (const auto& [id, needed] : arbiter.claims(device)) {
      if (is_below(ledger, arbiter.find(id)->tenant, tenant)) sum += needed;
    }
    Bytes open = sum.minus(ledger.quota(tenant, device).limit).minus(facts.coming(tenant));
    plan.held_lack += open;
    for (const auto& [leaf, target] : planner.asked().targets) {
      if (is_below(ledger, leaf, tenant)) open = open.minus(target.claims);
    }
    if (!open.is_zero()) collected += planner.collect(tenant, open, ReclaimCause::kClaims);
  }
  return collected;
}

// The leaves below the debtor that declared memory beyond their tenant's guarantee, the largest amount first.
std::vector<std::pair<Bytes, TenantId>> declarers(const Ledger& ledger, DeviceIndex device, TenantId debtor,
                                                  const ReclaimFacts& facts) {
  std::vector<std::pair<Bytes, TenantId>> found;
  const auto& declared = facts.declared;
  auto [at, end] =
      ledger.has_members(debtor) ? std::pair(declared.begin(), declared.end()) : declared.equal_range(debtor);
  for (; at != end; ++at) {
    const auto& [leaf, bytes] = *at;
    const TenantId tenant = ledger.whole(leaf);
    const Bytes beyond = ledger.used(tenant, device).minus(ledger.quota(tenant, device).guarantee);
    const Bytes part = std::min(bytes, beyond);
    if (!part.is_zero() && is_below(ledger, leaf, debtor)) found.emplace_back(part, leaf);
  }
  largest_first(found);
  return found;
}

}  // namespace

Bytes lack_of(const Ledger& ledger, const Arbiter& arbiter, const Request& request, DeviceIndex device,
              Bytes there) {
  const Bytes needed = needed_of(ledger, request, device);
  const Bytes beyond = needed.minus(ledger.claimable(request.tenant, device));
  if (!ledger.lends(device))
    return std::max(needed.minus(there), (beyond + ledger.kept(device)).minus(there));
  const Bytes lack = (needed + arbiter.spoken_for(request.id, device)).minus(there);
  const bool may_borrow = request.may_borrow && ledger.unanswered(request.tenant, device).is_zero();
  if (may_borrow || beyond.is_zero()) return lack;
  return std::max(lack, (beyond + std::max(ledger.kept(device), ledger.pool_kept(device))).minus(there));
}

ReclaimPlan plan_reclaim(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device,
                         const ReclaimFacts& facts, ReclaimTargets debts) {
  ReclaimPlan plan;
  const Bytes there = ledger.free_or_creatable(device) + facts.coming({});
  Planner planner(ledger, device, facts, std::move(debts));
  plan.claims_lack = arbiter.claimed(device).minus(there.minus(facts.staying({})));
  Bytes collected = plan_overcommitted(ledger, arbiter, device, facts, planner, plan);
  if (const Bytes open = plan.claims_lack.minus(collected); !open.is_zero())
    planner.collect({}, open, ReclaimCause::kClaims);
  planner.draw_debts();
  if (const auto next = arbiter.next(device)) {
    Bytes to_come = there;
    for (const auto& [leaf, target] : planner.asked().targets) to_come += target.pool();
    const Request& request = *arbiter.find(*next);
    plan_fairness(ledger, device, request, lack_of(ledger, arbiter, request, device, to_come), {}, planner);
  }
  plan_held_back(ledger, arbiter, device, facts, planner);
  plan.targets = planner.take_targets();
  return plan;
}

SiblingTargets plan_siblings(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device,
                             const Coming& coming, const ReclaimPlan& plan) {
  SiblingTargets targets;
  const auto ask = [&](const Request& request, Bytes bytes) {
    SiblingTarget& target = targets[request.tenant];
    if (bytes > target.bytes) target = {request.id, bytes};
  };
  if (const auto next = arbiter.next(device)) {
    Bytes to_come = ledger.free_or_creatable(device) + coming({});
    for (const auto& [leaf, target] : plan.targets) to_come += target.pool();
    const Request& request = *arbiter.find(*next);
    ask(request, lack_of(ledger, arbiter, request, device, to_come));
  }
  for (const auto& [tenant, id] : arbiter.held_back(device)) {
    if (arbiter.is_claim(id, device)) continue;
    const Request& request = *arbiter.find(id);
    ask(request, lack_below(ledger, device, tenant, request, coming, plan.targets));
  }
  std::size_t looked_at = 0;
  for (const auto& [id, leaf] : arbiter.full(device)) {
    if (looked_at++ == kMostServed) break;
    if (arbiter.is_claim(id, device)) continue;
    const Request& request = *arbiter.find(id);
    ask(request, lack_within(ledger, device, request, coming, plan));
  }
  return targets;
}

ReclaimTargets plan_debt(const Ledger& ledger, DeviceIndex device, TenantId debtor,
                         const ReclaimFacts& facts) {
  ReclaimTargets targets;
  Bytes due = ledger.debt(debtor, device).minus(facts.coming(debtor));
  if (due.is_zero()) return targets;
  for (const auto& [bytes, leaf] : declarers(ledger, device, debtor, facts)) {
    const Bytes part = std::min(due, bytes);
    if (part.is_zero()) break;
    targets[leaf].declared = part;
    due -= part;
  }
  Planner planner(ledger, device, facts, std::move(targets));
  if (ledger.has_members(debtor))
    planner.collect(debtor, due, ReclaimCause::kDebt);
  else
    planner.ask_leaf(debtor, due, due, ReclaimCause::kDebt);
  return planner.take_targets();
}

}  // namespace gpumem::core
