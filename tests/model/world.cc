#include "tests/model/world.h"

#include <algorithm>

namespace gpumem::core::model {
namespace {

constexpr std::array kStates{Charge::kOffered, Charge::kActive, Charge::kReturning, Charge::kQuarantined};

}  // namespace

World::World(const Shape& shape, std::mt19937_64& random)
    : CoreWorld(shape.policy),
      shape_(shape),
      random_(random),
      reference_(shape.policy),
      remade_later_(shape.policy.devices.size()),
      stolen_(shape.policy.devices.size()) {
  driver.fails = [this](const Extent&) { return flaky_ && one_in(3); };
  broker.tick(now);
  compare();
}

void World::compare() {
  reference_.settle();
  take_effects(*this);
  reference_.settle();
  for (const auto& [request, code] : refusals_)
    require(false, "request " + std::to_string(request.value) + " was not refused");
  require(reference_.forgotten.empty(), "a session that is over is not forgotten");
  check_devices();
  check_tenants();
  check_sessions();
  check_no_one_waits_in_vain();
  check_pressure();
}

// ---- Effects ----

void World::before_queueing(const Job& job) {
  const bool retries =
      job.turn == Job::Turn::kInOrder &&
      std::ranges::all_of(job.steps, [](const Job::Step& step) { return step.destroy.empty(); });
  if (retries) require(reference_.retried(job), "a retry tries other memory than what failed");
}

void World::take(SendOffer& effect) {
  offers_[effect.grant.id] = effect.session;
  const auto process = std::ranges::find(processes_, effect.session, &Process::session);
  require(process != processes_.end(), "an offer to nobody");
  if (process == processes_.end()) return;
  for (const OfferedLease& one : effect.grant.leases) {
    driver.hold(one.extent.id);
    process->held.push_back(one.extent.id);
    offered_[one.extent.id] = {one.device, one.extent.size};
  }
}

void World::take(AnswerGrow& effect) {
  const Reference::RequestRecord* asked = reference_.request(effect.request);
  const std::string name = "request " + std::to_string(effect.request.value);
  if (const auto refusal = refusals_.extract(effect.request); !refusal.empty()) {
    ++seen_.refusals;
    require(!effect.answer, name + " was granted");
    if (!effect.answer)
      require(effect.answer.error().error.code == refusal.mapped(), name + " was refused with another code");
    return;
  }
  if (asked != nullptr && !asked->assembling() && may_be_denied(*asked, effect))
    return reference_.cancel(effect.request);
  if (asked != nullptr && !asked->assembling()) {
    reference_.settle();  // what others could not get may have become its
    asked = reference_.request(effect.request);
  }
  require(asked != nullptr && asked->assembling(), name + " was answered, but should not have been");
  if (asked == nullptr) return;
  if (!effect.answer) {
    require(effect.answer.error().error.code == Code::kUnavailable,
            name + " was refused, but should be granted");
    ++seen_.unobtainable;
    reference_.unobtainable(effect.request);  // settled later: several may come at once
    return;
  }
  granted(*asked, *effect.answer, name);
}

// A claim that lacked memory for too long, where that ends it.
bool World::may_be_denied(const Reference::RequestRecord& asked, const AnswerGrow& effect) const {
  if (effect.answer || effect.answer.error().error.code == Code::kUnavailable) return false;
  const auto standing = reference_.standing();
  const Moment moment(standing.books, standing.queue);
  const auto place = static_cast<Moment::Place>(
      std::ranges::find(standing.queue, asked.id(), [](const Waiting& one) { return one.request.id; }) -
      standing.queue.begin());
  return std::ranges::any_of(asked.request.parts, [&](const Request::Part& part) {
    const ReclaimPolicy& reclaim = reference_.policy.devices[part.device].reclaim;
    return reclaim.escalation == Escalation::kDeny && asked.request.asked + reclaim.deadline <= now &&
           moment.is_claim(place, part.device);
  });
}

void World::granted(const Reference::RequestRecord& asked, const Grant& grant, const std::string& name) {
  ++seen_.grants;
  for (std::size_t i = 0; i < asked.granted.size(); ++i) {
    Number sum = 0;
    for (const OfferedLease& one : grant.leases) {
      const bool is_its =
          one.slice == asked.request.parts[i].slice && one.device == asked.request.parts[i].device;
      sum += is_its ? number(one.extent.size) : 0;
    }
    require(sum == asked.granted[i], name + " got another amount" + in_words(asked.granted[i], sum));
  }
  require(offers_[grant.id] == asked.request.session,
          name + ": no offer to its session came before the answer");
  const auto process = std::ranges::find(processes_, asked.request.session, &Process::session);
  for (const OfferedLease& one : grant.leases) process->leases.emplace_back(one.slice, one.lease);
  grants_.emplace_back(asked.request.session, grant.id);
  reference_.assembled(asked.id(), grant);
}

void World::take(RingDoorbell& effect) {
  require(broker.knows(effect.session), "a bell for a session that is over");
}

void World::take(SignalSession& effect) {
  const auto process = std::ranges::find(processes_, effect.session, &Process::session);
  require(process != processes_.end(), "a signal for a process that is gone");
  if (process == processes_.end()) return;
  require(process->doomed || effect.signal == Signal::kTerminate, "a signal out of turn");
  process->doomed = true;
  if (effect.signal == Signal::kTerminate) signalled_.push_back(effect.session);
  ++seen_.signals;
}

void World::take(ForgetSession& effect) {
  require(reference_.forgotten.erase(effect.session) == 1, "a session is forgotten that is not over");
}

// ---- Comparisons ----

void World::check_devices() {
  const auto views = broker.devices();
  for (DeviceIndex device = 0; device < views.size(); ++device) check_device(views[device], device);
}

void World::check_device(const DeviceView& view, DeviceIndex device) {
  const Number charged = reference_.charged(device);
  const Number missing = reference_.missing[device];
  require(number(view.charges.total()) == charged,
          "charges" + in_words(charged, number(view.charges.total())));
  require(charged <= reference_.pool(device), "more is charged than the pool has");
  require(number(view.missing) == missing, "missing" + in_words(missing, number(view.missing)));
  require(number(view.free) == std::max<Number>(0, reference_.free(device)), "free bytes");
  require(view.waiting == reference_.waiting(device), "requests that wait");

  seen_.waits += view.waiting != 0 ? 1 : 0;
  seen_.quarantines += !view.charges[Charge::kQuarantined].is_zero() ? 1 : 0;
  seen_.shortages += missing != 0 ? 1 : 0;

  Number reshaping = 0;
  jobs[device].for_each([&](const Job& job) {
    if (job.turn == Job::Turn::kInOrder) return;
    for (const Job::Step& step : job.steps)
      for (const Extent& extent : step.create) reshaping += number(extent.size);
  });
  const Number warm = number(view.warm);
  const Number there = reference_.free(device) + reference_.assembling(device);
  // One part of a growth may be ready while another has still to be brought together.
  const Number ready = there - warm - reshaping;
  require(ready >= 0 && ready <= reference_.assembling_jointly(device),
          "free bytes do not exist" + in_words(there, warm + reshaping));
  Number lent = 0;  // on loan, or come back and not destroyed yet: proofs wait until the pool is made
  for (const auto& lease : reference_.leases)
    lent += lease.device == device && !destroyed_.contains(lease.extent.id) ? lease.bytes() : 0;
  const Number handled = warm + ready + lent + reshaping - remade_later_[device];
  require(number(driver.handled(device)) == handled,
          "the driver holds" + in_words(handled, number(driver.handled(device))));
}

void World::check_tenants() {
  const auto views = broker.tenants();
  require(views.size() == reference_.tenants.size() * reference_.policy.devices.size(),
          "the number of tenants");
  const auto standing = reference_.standing();
  for (DeviceIndex device = 0; device < reference_.policy.devices.size(); ++device) {
    const Accounts accounts(standing.books, device);
    for (const TenantView& view : views) {
      if (view.device != device) continue;
      const auto node = standing.nodes.find(view.name);
      require(node != standing.nodes.end(), "tenant " + view.name + " should be gone");
      if (node != standing.nodes.end()) check_tenant(view, accounts, node->second);
    }
  }
}

void World::check_tenant(const TenantView& view, const Accounts& accounts, NodeIndex node) {
  const Reference::Tenant& tenant = reference_.tenants.at(view.name);
  require(view.quota == tenant.quotas[view.device], "quota of " + view.name);
  require(view.parent == tenant.parent, "parent of " + view.name);
  for (const Charge state : kStates) {
    Number expected = 0;
    for (const auto& [name, one] : reference_.tenants)
      expected += reference_.is_below(name, view.name) ? reference_.charged(name, view.device, state) : 0;
    require(number(view.charges[state]) == expected, view.name + " in state " +
                                                         std::to_string(static_cast<int>(state)) +
                                                         in_words(expected, number(view.charges[state])));
  }
  require(view.waiting == reference_.waiting(view.device, &view.name),
          "requests of " + view.name + " that wait");
  const Accounts::Account& account = accounts.of(node);
  require(number(view.charges.total() + view.outside) == account.used, "what is used by " + view.name);
  require(number(view.burst) == account.burst,
          "burst of " + view.name + in_words(account.burst, number(view.burst)));
  const Number debt = std::max<Number>(0, account.used - accounts.limit(node));
  require(number(view.debt) == debt, "debt of " + view.name + in_words(debt, number(view.debt)));
  Number& before = leased_before_[{view.name, view.device}];
  const bool fits = account.leases <= accounts.limit(node) || account.leases <= before;
  require(fits || last_event_ == "reload", view.name + " grew past its limit");
  before = account.leases;
}

void World::check_sessions() {
  const auto views = broker.sessions();
  require(views.size() == reference_.sessions.size(), "the number of sessions");
  for (const SessionView& view : views) {
    const auto* session = reference_.session(view.id);
    require(session != nullptr && session->alive == !view.ended && session->tenant == view.tenant,
            "a session");
    for (const SliceView& slice : view.slices) {
      require(reference_.slice(slice.id) != nullptr, "a slice should be gone");
      require(number(slice.charged) == reference_.charged(slice.id), "the charge of a slice");
      require(number(slice.waiting) == reference_.waiting(slice.id), "what a slice waits for");
    }
  }
}

// The promise itself, not the rule that keeps it: what is within a guarantee is granted at once, unless it is
// lent, memory is missing, or promises were raised over what is lent already.
void World::check_no_one_waits_in_vain() {
  const auto standing = reference_.standing();
  const Moment moment(standing.books, standing.queue);
  for (DeviceIndex device = 0; device < jobs.size(); ++device) {
    const Accounts& accounts = moment.accounts(device);
    require(!moment.granted(device), "a request waits that could be granted");
    seen_.claims += moment.claims(device).empty() ? 0 : 1;
    if (standing.books.devices[device].lends || standing.books.free(device) < accounts.of(Books::kTop).kept)
      continue;
    for (const Moment::Place claim : moment.claims(device)) {
      const Waiting& one = standing.queue[claim];
      const bool over = accounts.over_limit(one.leaf, number(one.part_on(device)->min_bytes));
      require(one.request.parts.size() > 1 || over, "a request within its guarantee waits");
    }
  }
}

void World::expect_same(std::optional<Code> expected, const Result<void>& answer, const char* what) {
  const std::string found = answer ? "success" : to_string(answer.error());
  require(expected.has_value() == !answer.has_value(), std::string(what) + ": " + found);
  if (expected && !answer) require(*expected == answer.error().code, std::string(what) + ": " + found);
}

}  // namespace gpumem::core::model
