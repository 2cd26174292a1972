#include "daemon/core/sessions/state.h"

#include <algorithm>

namespace gpumem::core {
namespace {

std::vector<Bytes> of_devices(const Policy& policy, Bytes DevicePolicy::*member) {
  std::vector<Bytes> values;
  for (const DevicePolicy& device : policy.devices) values.push_back(device.*member);
  return values;
}

}  // namespace

State::State(Policy policy_in_force)
    : ledger(of_devices(policy_in_force, &DevicePolicy::pool)),
      policy(std::move(policy_in_force)),
      tenants(ledger),
      arbiter(ledger, of_devices(policy, &DevicePolicy::granularity), policy.aging),
      reserving(policy.devices.size()),
      declaring(policy.devices.size()),
      past_broker(policy.devices.size()),
      hinders_proofs(policy.devices.size()),
      given_to_contexts(policy.devices.size()),
      contexts_seen(policy.devices.size()),
      not_asked_for(policy.devices.size()),
      unasked(policy.devices.size()) {}

void State::charge_unasked(TenantId tenant, DeviceIndex device, Bytes before, Bytes after) {
  auto& of_device = unasked[device];
  const Bytes sum = of_device[tenant] + after - before;
  if (sum.is_zero())
    of_device.erase(tenant);
  else
    of_device[tenant] = sum;
}

Result<Session*> State::live(SessionId id) {
  Session* known = find(id);
  if (known == nullptr || known->ended)
    return Error{Code::kUnauthenticated, "the session has ended; connect again"};
  return known;
}

Result<Session*> State::borrower(SessionId id) {
  auto session = live(id);
  if (!session) return session;
  if (draining) return Error{Code::kUnavailable, "the broker is stopping"};
  if (!stopped_lending.empty()) return Error{Code::kUnavailable, stopped_lending};
  return session;
}

Session* State::find(SessionId id) {
  const auto found = sessions.find(id);
  return found == sessions.end() ? nullptr : found->second.get();
}

CommandJob* State::find_job(CommandJobId id) {
  const auto found = jobs.find(id);
  return found == jobs.end() ? nullptr : &found->second;
}

Checkpoint::CommandJob State::checkpoint_of(const CommandJob& job) const {
  Checkpoint::CommandJob one{job.id, job.owner, job.account, job.label,  job.since,
                             {},     {},        job.waited,  job.denied, {}};
  for (DeviceIndex device = 0; device < job.devices.size(); ++device) {
    one.limits.push_back(ledger.quota(job.leaf, device).limit);
    one.reservations.push_back(ledger.reservation(job.leaf, device) + job.devices[device].restored);
    one.peaks.push_back(job.devices[device].recorded_peak);
  }
  return one;
}

void State::record(CommandJob& job) {
  for (CommandJob::OnDevice& one : job.devices) one.recorded_peak = one.peak;
  outbox.record(checkpoint_of(job));
}

void State::transfer(const Session& from, TenantId to, DeviceIndex device, const Charges& charges) {
  ledger.transfer(from.leaf, to, device, charges, {});
  if (CommandJob* const job = find_job(from.job)) record(*job);  // with a smaller reservation
}

void State::transfer_outside(TenantId from, TenantId to, DeviceIndex device, Bytes bytes, Bytes not_asked) {
  if (from == to || bytes.is_zero()) return;
  ledger.transfer(from, to, device, {}, bytes);
  charge_unasked(from, device, not_asked, {});
  charge_unasked(to, device, {}, not_asked);
}

Result<DeviceIndex> State::find_device(const std::string& uuid) const {
  const auto found = std::ranges::find(policy.devices, uuid, &DevicePolicy::uuid);
  if (found != policy.devices.end()) return static_cast<DeviceIndex>(found - policy.devices.begin());
  std::string known;
  for (const DevicePolicy& one : policy.devices) known += " " + one.uuid;
  return Error{Code::kNotFound, "the broker lends no device '" + uuid + "', but:" + known};
}

}  // namespace gpumem::core
