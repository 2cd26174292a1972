#include "tests/model/world.h"

#include <algorithm>

namespace gpumem::core::model {
namespace {

std::vector<Bytes> totals(const Policy& policy) {
  std::vector<Bytes> all;
  for (const DevicePolicy& device : policy.devices) all.push_back(device.total);
  return all;
}

std::string in_words(Number expected, Number found) {
  return ": expected " + std::to_string(expected) + ", found " + std::to_string(found);
}

constexpr std::array kStates{Charge::kOffered, Charge::kActive, Charge::kReturning, Charge::kQuarantined};

}  // namespace

World::World(const Shape& shape, std::mt19937_64& random)
    : shape_(shape),
      random_(random),
      broker_(shape.policy),
      driver_(totals(shape.policy)),
      reference_(shape.policy),
      jobs_(shape.policy.devices.size()) {
  driver_.fails = [this](const Extent&) { return flaky_ && one_in(3); };
  broker_.tick(now_);
  compare();
}

void World::compare() {
  reference_.settle();
  take_effects();
  for (const auto& [request, code] : refusals_)
    require(false, "request " + std::to_string(request.value) + " was not refused");
  require(reference_.forgotten.empty(), "a session that is over is not forgotten");
  check_devices();
  check_tenants();
  check_sessions();
  check_no_one_waits_in_vain();
}

// ---- Effects ----

void World::take_effects() {
  for (Effect& effect : broker_.take_effects()) {
    std::visit([this](auto& one) { take(one); }, effect);
  }
  reference_.settle();
}

void World::take(RunJob& effect) {
  const bool retries =
      std::ranges::all_of(effect.job.steps, [](const Job::Step& step) { return step.destroy.empty(); });
  if (retries) require(reference_.retried(effect.job), "a retry tries something else than what failed");
  jobs_[effect.job.device].push_back(std::move(effect.job));
}

void World::take(SendOffer& effect) {
  offers_[effect.grant.id] = effect.session;
  const auto process = std::ranges::find(processes_, effect.session, &Process::session);
  require(process != processes_.end(), "an offer to nobody");
  if (process == processes_.end()) return;
  for (const OfferedLease& one : effect.grant.leases) {
    driver_.hold(one.extent.id);
    process->held.push_back(one.extent.id);
  }
}

void World::take(AnswerGrow& effect) {
  const auto* asked = reference_.request(effect.request);
  const std::string name = "request " + std::to_string(effect.request.value);
  if (const auto refusal = refusals_.extract(effect.request); !refusal.empty()) {
    ++seen_.refusals;
    require(!effect.answer, name + " was granted");
    if (!effect.answer)
      require(effect.answer.error().error.code == refusal.mapped(), name + " was refused with another code");
    return;
  }
  if (asked != nullptr && !asked->assembling) {
    reference_.settle();  // what others could not get may have become its
    asked = reference_.request(effect.request);
  }
  require(asked != nullptr && asked->assembling, name + " was answered, but should not have been");
  if (asked == nullptr) return;
  if (!effect.answer) {
    require(effect.answer.error().error.code == Code::kUnavailable,
            name + " was refused, but should be granted");
    ++seen_.unobtainable;
    reference_.unobtainable(effect.request);  // settled later: several may come at once
    return;
  }
  ++seen_.grants;
  Number sum = 0;
  for (const OfferedLease& one : effect.answer->leases) sum += number(one.extent.size);
  require(sum == asked->bytes, name + " got another amount");
  require(offers_[effect.answer->id] == asked->session,
          name + ": no offer to its session came before the answer");
  const auto process = std::ranges::find(processes_, asked->session, &Process::session);
  for (const OfferedLease& one : effect.answer->leases) process->leases.emplace_back(asked->slice, one.lease);
  grants_.emplace_back(asked->session, effect.answer->id);
  reference_.assembled(effect.request, *effect.answer);
}

void World::take(ForgetSession& effect) {
  require(reference_.forgotten.erase(effect.session) == 1, "a session is forgotten that is not over");
}

// ---- Comparisons ----

void World::check_devices() {
  const auto views = broker_.devices();
  for (DeviceIndex device = 0; device < views.size(); ++device) check_device(views[device], device);
}

void World::check_device(const DeviceView& view, DeviceIndex device) {
  const Number charged = reference_.charged(device);
  const Number missing = reference_.missing(device);
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
  Number returning = 0;  // to be destroyed by a job that has not run
  for (const Job& job : jobs_[device]) {
    for (const Job::Step& step : job.steps) {
      if (step.destroy.empty()) continue;
      const bool lent = reference_.lease_of(step.destroy[0]) != nullptr;
      for (const Extent& extent : step.create) (lent ? returning : reshaping) += number(extent.size);
    }
  }
  const Number warm = number(view.warm);
  const Number there = reference_.free(device) + reference_.assembling(device);
  require(warm + reshaping == there, "free bytes do not exist" + in_words(there, warm + reshaping));
  Number on_loan = 0;
  for (const auto& lease : reference_.leases)
    on_loan += lease.device == device && !lease.in_store ? lease.bytes() : 0;
  const Number handled = warm + on_loan + reshaping + returning;
  require(number(driver_.handled(device)) == handled,
          "the driver holds" + in_words(handled, number(driver_.handled(device))));
}

void World::check_tenants() {
  const auto views = broker_.tenants();
  require(views.size() == reference_.tenants.size() * reference_.policy.devices.size(),
          "the number of tenants");
  for (const TenantView& view : views) {
    const auto tenant = reference_.tenants.find(view.name);
    require(tenant != reference_.tenants.end(), "tenant " + view.name + " should be gone");
    if (tenant == reference_.tenants.end()) continue;
    require(view.quota == tenant->second.quotas[view.device], "quota of " + view.name);
    for (const Charge state : kStates) {
      const Number expected = reference_.charged(view.name, view.device, state);
      require(number(view.charges[state]) == expected, view.name + " in state " +
                                                           std::to_string(static_cast<int>(state)) +
                                                           in_words(expected, number(view.charges[state])));
    }
    require(view.waiting == reference_.waiting(view.device, &view.name),
            "requests of " + view.name + " that wait");
    const Number total = number(view.charges.total());
    Number& before = charged_before_[{view.name, view.device}];
    require(total <= number(view.quota.limit) || total <= before, view.name + " grew past its limit");
    before = total;
  }
}

void World::check_sessions() {
  const auto views = broker_.sessions();
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

// The promise itself, not the rule that keeps it: what is within a guarantee is granted at once, unless
// memory is missing, or guarantees were raised over what is lent already.
void World::check_no_one_waits_in_vain() {
  for (const auto& one : reference_.requests) {
    if (one.assembling) continue;
    const Number others = reference_.unmet_of_others(one.tenant, one.device);
    const Number own = reference_.unmet(one.tenant, one.device);
    const bool in_debt = reference_.free(one.device) < others + own;
    require(one.bytes > own || in_debt, "a request within its guarantee waits");
  }
}

void World::expect_same(std::optional<Code> expected, const Result<void>& answer, const char* what) {
  const std::string found = answer ? "success" : to_string(answer.error());
  require(expected.has_value() == !answer.has_value(), std::string(what) + ": " + found);
  if (expected && !answer) require(*expected == answer.error().code, std::string(what) + ": " + found);
}

}  // namespace gpumem::core::model
