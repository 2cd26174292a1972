#include <algorithm>

#include "tests/model/world.h"

// What is asked back: who heeds it, and how much it may be.

namespace gpumem::core::model {
namespace {

// What has to come back of a device beyond what is free or on its way, by the definitions of docs/arbiter.md.
// Groups are one level deep here.
class Needs {
 public:
  Needs(const Reference::Standing& standing, DeviceIndex device, const Reference& reference)
      : standing_(standing),
        device_(device),
        reference_(reference),
        moment_(standing.books, standing.queue),
        accounts_(moment_.accounts(device)),
        there_(std::max<Number>(0, standing.books.free(device)) + returning(Books::kTop)) {}

  // Of the pool; or below groups whose limit has no room for all that can be claimed below them.
  Number of_claims() const {
    Number below_limits = 0;
    for (NodeIndex node = 1; node < standing_.books.nodes.size(); ++node) {
      const Number room = limit(node) - accounts_.of(node).leases;
      const bool is_group = !standing_.books.children(node).empty();
      if (is_group && accounts_.of(node).kept > std::max<Number>(0, room))
        below_limits += std::max<Number>(0, claimed(node) - room - returning(node));
    }
    return std::max(below_limits, claimed(Books::kTop) - there_);
  }

  // With what claims wait for, or with what is kept, which it must leave.
  Number of_next() const {
    const auto next = moment_.first(device_);
    if (!next) return 0;
    const Number bytes = least(*next);
    const NodeIndex leaf = standing_.queue[*next].leaf;
    const Number beyond = std::max<Number>(0, bytes - accounts_.claimable(leaf));
    const auto& all = accounts_.of(Books::kTop);
    if (!standing_.books.devices[device_].lends) return std::max(bytes, beyond + all.kept) - there_;
    const Number others = claimed(Books::kTop) - (moment_.is_claim(*next, device_) ? bytes : 0);
    const bool is_barred = beyond > 0 && !accounts_.may_borrow(leaf);
    return std::max(bytes + others, is_barred ? beyond + std::max(all.kept, all.pool_kept) : 0) - there_;
  }

  Number of_debt(NodeIndex node) const {
    return std::max<Number>(0, accounts_.of(node).used - limit(node) - returning(node));
  }
  // At most what of a debt is asked for outside the pool.
  Number of_debt_declared(NodeIndex node) const {
    Number declared = 0;
    for (NodeIndex leaf = 1; leaf < standing_.books.nodes.size(); ++leaf)
      declared += is_below(leaf, node) ? standing_.books.nodes[leaf].outside[device_] : 0;
    return std::min(of_debt(node), declared);
  }

  // For the request that the node's limit holds back, beside so much for its debt. The excess has the debt in
  // it. Not so where the request could be claimed, but for the limit: what is declared is not in its way
  // then.
  Number below(NodeIndex node, Number debt) const {
    const auto held_back = moment_.held_back(node, device_);
    if (!held_back || moment_.is_claim(*held_back, device_)) return debt;
    const NodeIndex leaf = standing_.queue[*held_back].leaf;
    const Number excess = accounts_.excess_at(node, leaf, least(*held_back)) - returning_that_counts(node);
    if (least(*held_back) <= accounts_.claimable(leaf, node)) return debt + std::max<Number>(0, excess);
    return std::max(debt, excess);
  }

  // For the first request of a leaf that has no room for it, with what the leaf owes already. What it has
  // declared takes nothing of its reach.
  Number of_full(NodeIndex leaf) const {
    const auto first = std::ranges::find_if(standing_.queue, [&](const Waiting& one) {
      return one.leaf == leaf && one.part_on(device_) != nullptr;
    });
    if (first == standing_.queue.end()) return 0;
    const auto place = static_cast<Moment::Place>(first - standing_.queue.begin());
    if (moment_.is_claim(place, device_)) return 0;
    const Number more = least(place) - returning(leaf);
    const Number of_limit = accounts_.of(leaf).used + more - limit(leaf);
    const Number of_reach = accounts_.of(leaf).leases + more - accounts_.reach(leaf);
    return std::max({Number{0}, of_limit, of_reach > 0 ? of_reach + of_debt_declared(leaf) : 0});
  }

  // For the leaf's own requests, whose turn it is somewhere.
  Number of_own(NodeIndex leaf) const {
    const auto is_its = [&](const std::optional<Moment::Place>& place) {
      return place && standing_.queue[*place].leaf == leaf;
    };
    Number sum = of_full(leaf);
    if (is_its(moment_.first(device_))) sum += std::max<Number>(0, of_next());
    for (const NodeIndex node : standing_.books.way_up(leaf))
      if (is_its(moment_.held_back(node, device_))) sum += below(node, 0);
    return sum;
  }

 private:
  Number limit(NodeIndex node) const { return accounts_.limit(node); }
  Number least(Moment::Place place) const {
    return number(standing_.queue[place].part_on(device_)->min_bytes);
  }
  bool is_below(NodeIndex leaf, NodeIndex node) const {
    return std::ranges::count(standing_.books.way_up(leaf), node) != 0;
  }
  Number claimed(NodeIndex node) const {
    Number sum = 0;
    for (const Moment::Place claim : moment_.claims(device_))
      sum += is_below(standing_.queue[claim].leaf, node) ? least(claim) : 0;
    return sum;
  }
  Number returning(NodeIndex node) const {
    Number sum = 0;
    for (const auto& [tenant, leaf] : standing_.nodes)
      sum += is_below(leaf, node) ? reference_.charged(tenant, device_, Charge::kReturning) : 0;
    return sum;
  }
  // A member with declared memory beyond its own limit counts above it as before when less than that comes
  // back.
  Number returning_that_counts(NodeIndex group) const {
    Number beyond = 0;
    for (const NodeIndex node : standing_.books.children(group)) {
      const auto& own = accounts_.of(node);
      if (standing_.books.nodes[node].is_part) continue;
      beyond += own.outside - std::min(own.outside, std::max<Number>(0, limit(node) - own.leases));
    }
    return std::max<Number>(0, returning(group) - beyond);
  }

  const Reference::Standing& standing_;
  DeviceIndex device_;
  const Reference& reference_;
  Moment moment_;
  const Accounts& accounts_;
  Number there_;
};

}  // namespace

// One lease, of a device of which the process is asked for some. False if there is none: what it was granted
// may not be there yet.
bool World::give_back_what_is_asked(Process& process) {
  const SessionId session = process.session;
  if (!broker.knows(session)) return false;
  const BrokerFigures figures = broker.figures(session);
  for (DeviceIndex device = 0; device < jobs.size(); ++device) {
    if (figures.devices[device].pressure == 0) continue;
    for (const auto& lease : reference_.leases) {
      if (lease.session != session || lease.device != device || lease.state > Charge::kActive) continue;
      give_back(process, lease.slice, {lease.id});
      return true;
    }
  }
  return false;
}

void World::heed() {
  Process* process = some_process();
  if (process == nullptr) return;
  if (!process->stubborn) {
    give_back_what_is_asked(*process);
  } else if (one_in(3)) {
    last_spent_ = now;
    require(bool{broker.spent(process->session, {shape_.policy.devices[below(jobs.size())].uuid}, now)},
            "every device is known");
    compare();
  }
}

void World::obey_signals() {
  const auto doomed = std::ranges::find(processes_, true, &Process::doomed);
  if (doomed != processes_.end()) exit(*doomed);
}

// If everybody gives back what is asked for, even the stubborn, and the driver has done its work, then no
// claim waits where all memory is there, unless its own side is over a limit.
void World::all_heed() {
  constexpr Duration kSpentIsBelieved = std::chrono::seconds(10);
  for (int rounds = 0; rounds < 2000 && fault_.empty(); ++rounds) {
    bool busy = std::ranges::any_of(processes_, &Process::doomed);
    obey_signals();
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (!processes_[i].hostile) busy |= give_back_what_is_asked(processes_[i]);
    }
    for (DeviceIndex device = 0; device < jobs.size(); ++device) {
      busy |= !jobs[device].empty();
      run_job(device);
    }
    if (!busy) break;
  }
  const bool hostile = std::ranges::any_of(processes_, &Process::hostile) ||
                       (last_spent_ && now < *last_spent_ + kSpentIsBelieved);
  const auto standing = reference_.standing();
  const Moment moment(standing.books, standing.queue);
  for (DeviceIndex device = 0; device < jobs.size() && !hostile; ++device) {
    if (reference_.missing[device] != 0 || reference_.is_any_stuck(device)) continue;
    for (const Moment::Place claim : moment.claims(device)) {
      const Waiting& one = standing.queue[claim];
      const Number least = number(one.part_on(device)->min_bytes);
      const bool over = moment.accounts(device).over_limit(one.leaf, least);
      require(one.request.parts.size() > 1 || over, "a claim waits although everybody gives back");
    }
    const auto is_joint = [](const Waiting& one) { return one.request.parts.size() > 1; };
    if (std::ranges::any_of(standing.queue, is_joint)) continue;
    const Needs needs(standing, device, reference_);
    for (const auto& [tenant, leaf] : standing.nodes) {
      const Number own = needs.of_own(leaf);
      Number held = 0;
      for (const auto& lease : reference_.leases) {
        const bool can_give =
            lease.tenant == tenant && lease.device == device && !reference_.waits(lease.session);
        held += can_give ? lease.bytes() : 0;
      }
      require(own == 0 || own > held,
              tenant + " waits although its own processes give back" + in_words(held, own));
    }
  }
}

void World::check_pressure() {
  const auto standing = reference_.standing();
  for (DeviceIndex device = 0; device < jobs.size(); ++device) check_pressure(standing, device);
  for (const SessionId id : std::exchange(signalled_, {})) {
    Number most = 0;
    for (DeviceIndex device = 0; device < jobs.size(); ++device) {
      const auto* session = reference_.session(id);
      if (session == nullptr) continue;
      most += may_be_asked(Accounts(standing.books, device), standing.nodes.at(session->tenant));
    }
    require(most > 0, "a session is to end whose tenant has no burst and no debt");
  }
}

// A burst, or the debt of the tenant or of one above it.
Number World::may_be_asked(const Accounts& accounts, NodeIndex leaf) const {
  Number most = accounts.of(leaf).burst;
  for (const NodeIndex node : reference_.standing().books.way_up(leaf)) {
    if (node != Books::kTop) most = std::max(most, accounts.of(node).used - accounts.limit(node));
  }
  return most;
}

// Nobody is asked for more than there is to ask for, nor all together for more than is needed.
void World::check_pressure(const Reference::Standing& standing, DeviceIndex device) {
  const Accounts accounts(standing.books, device);
  std::map<std::string, Number> asked;
  Number sum = 0;
  for (const auto& session : reference_.sessions) {
    if (!session.alive) continue;
    const auto pressure = static_cast<Number>(broker.figures(session.id).devices[device].pressure);
    Number held = 0;
    for (const auto& slice : reference_.slices) {
      if (slice.session == session.id && slice.device == device) held += reference_.held(slice.id);
    }
    require(pressure <= held + reference_.answers_for(session.id, device),
            "a session is asked for more than it holds" + in_words(held, pressure));
    asked[session.tenant] += pressure;
    sum += pressure;
  }
  const Needs needs(standing, device, reference_);
  for (const auto& [tenant, bytes] : asked) {
    const NodeIndex leaf = standing.nodes.at(tenant);
    const Number most = std::max<Number>(0, may_be_asked(accounts, leaf)) + needs.of_own(leaf);
    require(bytes <= most, tenant + " is asked for too much" + in_words(most, bytes));
  }
  seen_.pressure += sum != 0 ? 1 : 0;
  const Number most = needed(standing, device);
  require(sum <= most, "more is asked back than is needed" + in_words(most, sum));
}

// Claims do not wait for debtors, so both are asked for in full. The request that is next needs only what
// neither brings; declared memory brings it nothing. What a limit lacks comes from below it alone.
Number World::needed(const Reference::Standing& standing, DeviceIndex device) const {
  const Needs needs(standing, device, reference_);
  Number without_next = needs.of_claims();
  Number with_next = needs.of_next();
  for (NodeIndex node = 1; node < standing.books.nodes.size(); ++node) {
    without_next += std::max(needs.below(node, needs.of_debt(node)), needs.of_full(node));
    with_next += std::max(needs.below(node, needs.of_debt_declared(node)), needs.of_full(node));
  }
  return std::max(without_next, with_next);
}

}  // namespace gpumem::core::model
