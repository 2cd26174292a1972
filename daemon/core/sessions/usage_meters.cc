#include "daemon/core/sessions/usage_meters.h"

#include <algorithm>
#include <iterator>

namespace gpumem::core {

void UsageMeters::sync(TimePoint now) {
  state_.arbiter.take_touched(touched_);
  for (const auto& [leaf, device] : touched_) take_waiting(leaf, device, now);
  state_.ledger.take_touched(touched_);
  for (const auto& [tenant, device] : touched_) {
    renew_up(tenant, device, now);
    if (const auto job = state_.job_of_leaf.find(tenant); job != state_.job_of_leaf.end())
      renew(state_.jobs.at(job->second), now);
  }
  for (const SessionId id : state_.outbox.touched())
    if (Session* const session = state_.find(id)) renew(*session, now);
  record_what_is_due(now);
}

void UsageMeters::renew(Session& session, TimePoint now) {
  Spending& spent = session.spent;
  if (!spent.set_level(session.charged(), now)) return;
  record({session.id, {}, spent.sum, spent.since, spent.peak, session.waited, session.denied});
}

void UsageMeters::renew(CommandJob& job, TimePoint now) {
  if (job.spent.set_level(charged(job), now))
    record({{}, job.id, job.spent.sum, job.spent.since, job.spent.peak});
}

void UsageMeters::record(const Checkpoint::Spent& one) {
  state_.spent.insert_or_assign({one.session, one.job}, one);
  state_.outbox.record(one);
}

Bytes UsageMeters::charged(const CommandJob& job) const {
  Bytes sum;
  for (DeviceIndex device = 0; device < job.devices.size(); ++device)
    sum += state_.ledger.charges(job.leaf, device).total() + state_.ledger.outside(job.leaf, device);
  return sum;
}

void UsageMeters::take_waiting(TenantId leaf, DeviceIndex device, TimePoint now) {
  const Bytes wanted = state_.arbiter.wanted_by(leaf, device);
  if (wanted.is_zero() && !waiting_.contains({leaf, device})) return;  // granted by the event that asked
  Waiting& waiting = waiting_[{leaf, device}];
  const TenantId before = waiting.owner;
  count(waiting, device, false);
  waiting.bytes = wanted;
  if (state_.tenants.contains(leaf)) waiting.owner = state_.tenants.owner_of(leaf);
  count(waiting, device, true);
  for (const TenantId changed : {before, waiting.owner}) {
    if (changed) renew(changed, device, now);
  }
  renew({}, device, now);
  if (waiting.bytes.is_zero()) waiting_.erase({leaf, device});
}

void UsageMeters::count(const Waiting& waiting, DeviceIndex device, bool more) {
  for (const TenantId of : {waiting.owner, TenantId{}}) {
    Bytes& sum = waiting_of_[{of, device}];
    sum = more ? sum + waiting.bytes : sum - waiting.bytes;
    if (sum.is_zero()) waiting_of_.erase({of, device});
  }
}

void UsageMeters::renew_up(TenantId leaf, DeviceIndex device, TimePoint now) {
  if (!leaf) return renew({}, device, now);
  if (!state_.tenants.contains(leaf)) return close(leaf, device, now);
  for (TenantId at = state_.tenants.owner_of(leaf); at; at = state_.ledger.parent(at)) renew(at, device, now);
  renew({}, device, now);
}

void UsageMeters::renew(TenantId tenant, DeviceIndex device, TimePoint now) {
  if (tenant && !state_.tenants.contains(tenant)) return close(tenant, device, now);
  set_levels(account_of(tenant), device, levels_of(tenant, device), now);
}

// The tenant is gone, or never had an account, as leaves have none.
void UsageMeters::close(TenantId tenant, DeviceIndex device, TimePoint now) {
  const auto found = of_tenant_.find(tenant);
  if (found == of_tenant_.end()) return;
  Accounts::value_type& account = *found->second;
  if (account.second.tenant != tenant) {  // another one has come by that name
    of_tenant_.erase(found);
    return;
  }
  set_levels(account, device, {}, now);
  const auto is_idle = [](const auto& meter) { return !meter || meter->levels == UseLevels{}; };
  if (!std::ranges::all_of(account.second.meters, is_idle)) return;
  of_tenant_.erase(found);
  leave(account);
}

void UsageMeters::leave(Accounts::value_type& account) {
  account.second.tenant = {};
  account.second.gone = ++last_gone_;
  gone_.emplace(last_gone_, account.first);
  if (gone_.size() <= kMostGone) return;
  state_.outbox.record(Checkpoint::AccountGone{gone_.begin()->second});
  accounts_.erase(gone_.begin()->second);
  gone_.erase(gone_.begin());
}

UsageMeters::Accounts::value_type& UsageMeters::account_of(TenantId tenant) {
  const auto known = of_tenant_.find(tenant);
  if (known != of_tenant_.end()) return *known->second;
  const std::string name = tenant ? state_.tenants.name(tenant) : std::string();
  Accounts::value_type& account = *accounts_.try_emplace(name).first;
  account.second.tenant = tenant;
  account.second.meters.resize(state_.policy.devices.size());
  gone_.erase(std::exchange(account.second.gone, 0));
  return *(of_tenant_[tenant] = &account);
}

UseLevels UsageMeters::levels_of(TenantId tenant, DeviceIndex device) const {
  const Ledger& ledger = state_.ledger;
  const Charges& charges = tenant ? ledger.charges(tenant, device) : ledger.charges(device);
  const Bytes used = charges.total() + (tenant ? ledger.outside(tenant, device) : ledger.outside(device));
  const auto waiting = waiting_of_.find({tenant, device});
  UseLevels levels;
  const auto level = [&](Use use) -> Bytes& { return levels[static_cast<std::size_t>(use)]; };
  level(Use::kLent) = charges.held();
  level(Use::kReturning) = charges[Charge::kReturning] + charges[Charge::kQuarantined];
  level(Use::kReserved) = charges[Charge::kReserved];
  level(Use::kOutside) = used - charges.total();
  level(Use::kKept) = tenant ? ledger.used_and_kept(tenant, device) - used : ledger.kept(device);
  level(Use::kWaiting) = waiting == waiting_of_.end() ? Bytes{} : waiting->second;
  return levels;
}

void UsageMeters::advance(Meter& meter, TimePoint now) {
  if (now <= meter.since) return;
  for (std::size_t use = 0; use < kUses; ++use) meter.sums[use].add(meter.levels[use], now - meter.since);
  meter.since = now;
}

void UsageMeters::set_levels(Accounts::value_type& account, DeviceIndex device, const UseLevels& levels,
                             TimePoint now) {
  std::optional<Meter>& meter = account.second.meters[device];
  if (!meter) {
    if (levels == UseLevels{}) return;
    meter = Meter{.since = now, .began = now, .recorded = {}};
  }
  if (meter->levels == levels) return;
  advance(*meter, now);
  meter->levels = levels;
  if (meter->is_unwritten) return;
  if (!meter->recorded || now - meter->recorded->until >= kRecordInterval) return record(account, device);
  meter->is_unwritten = true;
  unwritten_.emplace(meter->recorded->until + kRecordInterval, std::pair(account.first, device));
}

void UsageMeters::record(Accounts::value_type& account, DeviceIndex device) {
  Meter& meter = *account.second.meters[device];
  meter.recorded =
      Checkpoint::Account{account.first, device, meter.began, meter.since, meter.sums, meter.levels};
  state_.outbox.record(*meter.recorded);
}

// Looks at the devices are events, too: no timer is needed.
void UsageMeters::record_what_is_due(TimePoint now) {
  for (auto due = unwritten_.begin(); due != unwritten_.end() && due->first <= now;) {
    const auto [name, device] = due->second;
    due = unwritten_.erase(due);
    const auto account = accounts_.find(name);
    if (account == accounts_.end() || !account->second.meters[device]) continue;
    Meter& meter = *account->second.meters[device];
    meter.is_unwritten = false;
    advance(meter, now);
    record(*account, device);
  }
}

// ---- After another broker ----

void UsageMeters::restore(const Checkpoint::Accounts& from,
                          const std::vector<std::optional<DeviceIndex>>& devices, TimePoint now) {
  for (const auto& [key, one] : from) {
    if (!devices[one.device]) continue;
    Account& account = accounts_[one.tenant];
    account.meters.resize(state_.policy.devices.size());
    Meter& meter = account.meters[*devices[one.device]].emplace();
    meter.sums = one.sums;
    meter.since = std::min(one.until, now);
    meter.levels = one.levels;
    meter.began = one.began;
    meter.recorded = one;
    meter.recorded->device = *devices[one.device];
  }
  std::map<std::string, TenantId> present(state_.tenants.by_name());
  present.emplace(std::string(), TenantId{});
  for (Accounts::value_type& account : accounts_) {
    const auto tenant = present.find(account.first);
    for (auto& meter : account.second.meters) {
      if (!meter) continue;
      advance(*meter, now);
      meter->levels = {};
    }
    if (tenant == present.end()) {
      leave(account);
      continue;
    }
    account.second.tenant = tenant->second;
    of_tenant_[tenant->second] = &account;
    for (DeviceIndex device = 0; device < account.second.meters.size(); ++device) {
      auto& meter = account.second.meters[device];
      if (meter) meter->levels = levels_of(tenant->second, device);
    }
  }
}

void UsageMeters::restore(const Checkpoint::AllSpent& from, TimePoint now) {
  for (const auto& [key, one] : from) {
    Session* const session = state_.find(key.first);
    CommandJob* const job = state_.find_job(key.second);
    if (session == nullptr && job == nullptr) continue;
    Spending& spent = session != nullptr ? session->spent : job->spent;
    spent.sum = one.sum;
    spent.since = std::min(one.until, now);
    spent.peak = one.peak;
    state_.spent.emplace(key, one);
    if (session == nullptr) continue;
    session->waited = one.waited;
    session->denied = one.denied;
  }
  const auto begin = [](Spending& spent, Bytes level) {
    spent.level = level;
    spent.peak = std::max(spent.peak, level);
  };
  for (const auto& [id, session] : state_.sessions) begin(session->spent, session->charged());
  for (auto& [id, job] : state_.jobs) begin(job.spent, charged(job));
}

void UsageMeters::add_to(Checkpoint& checkpoint) const {
  checkpoint.spent = state_.spent;
  for (const auto& [name, account] : accounts_) {
    for (const auto& meter : account.meters) {
      if (meter && meter->recorded)
        checkpoint.accounts.emplace(std::pair(name, meter->recorded->device), *meter->recorded);
    }
  }
}

UsagePage UsageMeters::usage(const std::optional<std::string>& after, std::size_t most, TimePoint now) const {
  UsagePage page;
  auto one = after ? accounts_.upper_bound(*after) : accounts_.begin();
  for (; one != accounts_.end() && most > 0; ++one, --most) {
    for (DeviceIndex device = 0; device < one->second.meters.size(); ++device) {
      if (!one->second.meters[device]) continue;
      Meter meter = *one->second.meters[device];
      advance(meter, now);
      page.views.push_back({one->first, device, meter.began, meter.sums});
    }
  }
  if (one != accounts_.end()) page.next = std::prev(one)->first;
  return page;
}

}  // namespace gpumem::core
