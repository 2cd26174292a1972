#include <algorithm>

#include "tests/model/world.h"

// What is asked back: who heeds it, and how much it may be.

namespace gpumem::core::model {

// One lease, of a device of which the process is asked for some. False if there is none: what it was granted
// may not be there yet.
bool World::give_back_what_is_asked(Process& process) {
  const SessionId session = process.session;
  if (!broker_.knows(session)) return false;
  const BrokerFigures figures = broker_.figures(session);
  for (DeviceIndex device = 0; device < jobs_.size(); ++device) {
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
    last_spent_ = now_;
    broker_.spent(process->session, below(jobs_.size()), now_);
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
    for (DeviceIndex device = 0; device < jobs_.size(); ++device) {
      busy |= !jobs_[device].empty();
      run_job(device);
    }
    if (!busy) break;
  }
  const bool hostile = std::ranges::any_of(processes_, &Process::hostile) ||
                       (last_spent_ && now_ < *last_spent_ + kSpentIsBelieved);
  const auto standing = reference_.standing();
  const Moment moment(standing.books, standing.queue);
  for (DeviceIndex device = 0; device < jobs_.size() && !hostile; ++device) {
    if (reference_.missing(device) != 0 || reference_.is_any_stuck(device)) continue;
    for (const Moment::Place claim : moment.claims(device)) {
      const Waiting& one = standing.queue[claim];
      const Number least = number(one.part_on(device)->least);
      const bool over = moment.accounts(device).over_limit(one.leaf, least);
      require(one.request.parts.size() > 1 || over, "a claim waits although everybody gives back");
    }
  }
}

void World::check_pressure() {
  const auto standing = reference_.standing();
  for (DeviceIndex device = 0; device < jobs_.size(); ++device) check_pressure(standing, device);
  for (const SessionId id : std::exchange(signalled_, {})) {
    Number most = 0;
    for (DeviceIndex device = 0; device < jobs_.size(); ++device) {
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
  const Moment moment(standing.books, standing.queue);
  std::map<std::string, Number> asked;
  Number sum = 0;
  for (const auto& session : reference_.sessions) {
    if (!session.alive) continue;
    const auto pressure = static_cast<Number>(broker_.figures(session.id).devices[device].pressure);
    Number held = 0;
    for (const auto& slice : reference_.slices) {
      if (slice.session == session.id && slice.device == device) held += reference_.held(slice.id);
    }
    require(pressure <= held + reference_.answers_for(session.id, device),
            "a session is asked for more than it holds" + in_words(held, pressure));
    asked[session.tenant] += pressure;
    sum += pressure;
  }
  for (const auto& [tenant, bytes] : asked) {
    const Number most = may_be_asked(accounts, standing.nodes.at(tenant));
    require(bytes <= most, tenant + " is asked for too much" + in_words(most, bytes));
  }
  seen_.pressure += sum != 0 ? 1 : 0;
  Number needed = 0;
  for (const Moment::Place claim : moment.claims(device))
    needed += number(standing.queue[claim].part_on(device)->least);
  if (const auto first = moment.first(device)) {
    const Number least = number(standing.queue[*first].part_on(device)->least);
    needed += least + accounts.of(Books::kTop).kept;
  }
  for (NodeIndex node = 1; node < standing.books.nodes.size(); ++node)
    needed += std::max<Number>(0, accounts.of(node).used - accounts.limit(node)) +
              held_back(moment, standing, device, node);
  require(sum <= needed, "more is asked back than is needed" + in_words(needed, sum));
}

// At most what the first below a tenant needs whose own limit holds it back.
Number World::held_back(const Moment& moment, const Reference::Standing& standing, DeviceIndex device,
                        NodeIndex node) const {
  if (standing.books.children(node).empty() || moment.candidate(node, device)) return 0;
  Number most = 0;
  for (const Waiting& one : standing.queue) {
    const auto* part = one.part_on(device);
    const auto way = standing.books.way_up(one.leaf);
    if (part != nullptr && std::ranges::count(way, node) != 0)
      most = std::max(most, number(part->least) + moment.accounts(device).of(node).kept);
  }
  return most;
}

}  // namespace gpumem::core::model
