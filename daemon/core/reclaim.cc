#include "daemon/core/reclaim.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace gpumem::core {
namespace {

// Whose burst may be drawn on, among the children of a node.
struct Among {
  TenantId except;                           ///< who asks
  std::uint32_t priority = kMaxPriority;     ///< of this at most
  double floor = 0;                          ///< the share that those of exactly that priority keep
};

class Planner {
 public:
  Planner(const Ledger& ledger, DeviceIndex device, const ReclaimFacts& facts, ReclaimPlan& plan)
      : ledger_(ledger), device_(device), facts_(facts), plan_(plan) {}

  // Asks those below `node` for `amount`, as far as they have it; answers how much they were asked for.
  Bytes collect(TenantId node, Bytes amount, Bytes Ask::* cause, const Among& among = {}) {
    Bytes collected;
    const auto& bursting = ledger_.bursting(node, device_);
    for (auto it = bursting.begin(); it != bursting.end() && collected < amount;) {
      const std::uint32_t priority = it->priority;
      if (priority > among.priority) break;
      const double floor = priority == among.priority ? among.floor : 0;
      const auto end = std::find_if(it, bursting.end(), [&](const Ledger::Bursting& one) {
        return one.priority != priority || one.share <= floor;
      });
      collected += level(it, end, floor, amount - collected, cause, among.except);
      it = std::find_if(end, bursting.end(),
                        [&](const Ledger::Bursting& one) { return one.priority != priority; });
    }
    return collected;
  }

  Bytes ask_leaf(TenantId leaf, Bytes amount, Bytes most, Bytes Ask::* cause) {
    const auto found = plan_.asks.find(leaf);
    const Bytes asked = found == plan_.asks.end() ? Bytes{} : found->second.claims + found->second.fairness;
    const Bytes part = std::min(amount, std::min(most, facts_.givable(leaf)).minus(asked));
    if (!part.is_zero()) plan_.asks[leaf].*cause += part;
    return part;
  }

 private:
  using Iterator = std::set<Ledger::Bursting>::const_iterator;

  // Brings the highest shares down to one level, so low that `amount` comes together, but not below `floor`. What
  // rounding or those with nothing to give leave open is asked of the others in their order.
  Bytes level(Iterator begin, Iterator end, double floor, Bytes amount, Bytes Ask::* cause, TenantId except) {
    std::vector<Ledger::Bursting> drawn;
    double bursts = 0;
    double weights = 0;
    double level = floor;
    for (auto it = begin; it != end; ++it) {
      if (it->tenant == except) continue;
      if (!drawn.empty() && level >= it->share) break;
      const double weight = ledger_.quota(it->tenant, device_).weight;
      drawn.push_back(*it);
      bursts += it->share * weight;
      weights += weight;
      level = std::max(floor, (bursts - static_cast<double>(amount.count)) / weights);
    }
    Bytes collected;
    for (const Ledger::Bursting& one : drawn) {
      const double over = (one.share - level) * ledger_.quota(one.tenant, device_).weight;
      const Bytes part = round(over, floor > 0);
      collected += draw(one.tenant, std::min(part, amount - collected), cause);
    }
    for (auto it = begin; it != end && collected < amount; ++it) {
      if (it->tenant == except) continue;
      const double over = (it->share - floor) * ledger_.quota(it->tenant, device_).weight;
      const Bytes most = round(over, floor > 0).minus(drawn_of(it->tenant, cause));
      collected += draw(it->tenant, std::min(most, amount - collected), cause);
    }
    return collected;
  }

  // Extents go whole: up, where the last one may cross the level; down, where a floor must be kept.
  Bytes round(double bytes, bool down) const {
    const double unit = static_cast<double>(facts_.granularity.count);
    const double units = down ? std::floor(bytes / unit + 1e-9) : std::ceil(bytes / unit - 1e-9);
    return {static_cast<std::uint64_t>(std::max(0.0, units)) * facts_.granularity.count};
  }

  Bytes draw(TenantId tenant, Bytes amount, Bytes Ask::* cause) {
    if (amount.is_zero()) return {};
    Bytes drawn;
    if (!ledger_.bursting(tenant, device_).empty()) {
      drawn = collect(tenant, amount, cause);
    } else {
      const Charges& charges = ledger_.charges(tenant, device_);
      const Bytes coming = charges[Charge::kReturning] + charges[Charge::kQuarantined];
      drawn = ask_leaf(tenant, amount, ledger_.burst(tenant, device_).minus(coming), cause);
    }
    drawn_[tenant] += drawn;
    return drawn;
  }
  Bytes drawn_of(TenantId tenant, Bytes Ask::*) const {
    const auto found = drawn_.find(tenant);
    return found == drawn_.end() ? Bytes{} : found->second;
  }

  const Ledger& ledger_;
  DeviceIndex device_;
  const ReclaimFacts& facts_;
  ReclaimPlan& plan_;
  std::map<TenantId, Bytes> drawn_;  ///< of nodes on every level
};

const Request::Part& part_on(const Request& request, DeviceIndex device) {
  return *std::ranges::find(request.parts, device, &Request::Part::device);
}

// For the next request, from those who would still have more than its tenant. All of it or nothing: a request that
// would take more than its share waits for what comes back of itself.
void plan_fairness(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device, Planner& planner,
                   ReclaimPlan& plan, Bytes there) {
  const auto next = arbiter.next(device);
  if (!next) return;
  const Request& request = *arbiter.find(*next);
  Bytes open = lack_of(ledger, arbiter, request, device, there);
  if (open.is_zero()) return;
  const ReclaimPlan before = plan;
  Bytes more = part_on(request, device).least;  // that the node would have then
  for (TenantId node = request.tenant; node && !open.is_zero(); node = ledger.parent(node)) {
    const Quota& quota = ledger.quota(node, device);
    const Bytes after = ledger.burst(node, device) + more;
    const double share = static_cast<double>(after.count) / static_cast<double>(quota.weight);
    const Bytes part = planner.collect(ledger.parent(node), open, &Ask::fairness, {node, quota.priority, share});
    open -= part;
    more = more.minus(part);
  }
  if (!open.is_zero()) plan = before;
}

void plan_debts(const Ledger& ledger, DeviceIndex device, const ReclaimFacts& facts, ReclaimPlan& plan) {
  for (const TenantId debtor : ledger.in_debt(device)) {
    const Charges& charges = ledger.charges(debtor, device);
    const Bytes due = ledger.debt(debtor, device).minus(charges[Charge::kReturning]);
    if (due.is_zero()) continue;
    ReclaimPlan own;
    Planner planner(ledger, device, facts, own);
    const bool leaf = ledger.bursting(debtor, device).empty();
    if (leaf)
      planner.ask_leaf(debtor, due, due, &Ask::debt);
    else
      planner.collect(debtor, due, &Ask::debt);
    for (const auto& [tenant, ask] : own.asks) {
      Bytes& debt = plan.asks[tenant].debt;
      debt = std::max(debt, ask.debt);
    }
  }
}

}  // namespace

Bytes lack_of(const Ledger& ledger, const Arbiter& arbiter, const Request& request, DeviceIndex device, Bytes there) {
  const Bytes least = part_on(request, device).least;
  if (ledger.lends(device)) return (least + arbiter.spoken_for(request.id, device)).minus(there);
  const Bytes claimable = ledger.claimable(request.tenant, device);
  return std::max(least.minus(there), (least.minus(claimable) + ledger.kept(device)).minus(there));
}

ReclaimPlan plan_reclaim(const Ledger& ledger, const Arbiter& arbiter, DeviceIndex device,
                         const ReclaimFacts& facts) {
  ReclaimPlan plan;
  const Bytes there = ledger.free(device) + facts.coming;
  Planner planner(ledger, device, facts, plan);
  plan.claims_lack = arbiter.claimed(device).minus(there);
  const Bytes collected =
      plan.claims_lack.is_zero() ? Bytes{} : planner.collect({}, plan.claims_lack, &Ask::claims);
  plan_fairness(ledger, arbiter, device, planner, plan, there + collected);
  if (!ledger.in_debt(device).empty()) plan_debts(ledger, device, facts, plan);
  return plan;
}

}  // namespace gpumem::core
