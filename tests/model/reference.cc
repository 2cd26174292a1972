#include "tests/model/reference.h"

#include <algorithm>
#include <limits>

namespace gpumem::core::model {

Reference::Reference(const Policy& start) : policy(start) {
  for (const TenantRule& rule : policy.tenants) tenants[rule.name] = {true, rule.quotas};
  retries.resize(policy.devices.size());
  for (const DevicePolicy& device : policy.devices) {
    // A new pool has still to be created, in the fewest pieces.
    auto& all = failures.emplace_back();
    Number rest = number(device.pool);
    for (Number size = number(device.granularity) * 1024; size >= number(device.granularity); size /= 4) {
      for (; rest >= size; rest -= size) all.push_back({size, {}});
    }
  }
}

// ---- What happens ----

std::optional<Code> Reference::connect(std::uint32_t uid, std::string& tenant) const {
  if (sessions.size() >= policy.max_sessions) return Code::kResourceExhausted;
  for (const TenantRule& rule : policy.tenants) {
    if (rule.uid == uid) tenant = rule.name;
  }
  if (!tenant.empty()) return std::nullopt;
  if (!policy.others) return Code::kPermissionDenied;
  tenant = "uid:" + std::to_string(uid);
  if (tenants.contains(tenant)) return std::nullopt;
  for (DeviceIndex device = 0; device < policy.devices.size(); ++device) {
    Number promised = number((*policy.others)[device].guarantee);
    for (const auto& [name, one] : tenants) promised += number(one.quotas[device].guarantee);
    if (promised > pool(device)) return Code::kResourceExhausted;
  }
  return std::nullopt;
}

void Reference::connected(SessionId id, const std::string& tenant, const std::vector<Quota>& quotas) {
  sessions.push_back({id, tenant, true});
  if (!tenants.contains(tenant)) tenants[tenant] = {false, quotas};
}

std::optional<Code> Reference::close_slice(SessionId owner, SliceId id) {
  if (session(owner) == nullptr || !session(owner)->alive) return Code::kUnauthenticated;
  if (slice(id) == nullptr || slice(id)->session != owner) return Code::kNotFound;
  if (held(id) != 0 || waiting(id) != 0) return Code::kFailedPrecondition;
  std::erase_if(slices, [&](const SliceRecord& one) { return one.id == id; });
  return std::nullopt;
}

std::optional<Code> Reference::grow(RequestId id, SessionId owner, SliceId of, Bytes bytes, Duration wait,
                                    TimePoint now) {
  if (session(owner) == nullptr || !session(owner)->alive) return Code::kUnauthenticated;
  if (slice(of) == nullptr || slice(of)->session != owner) return Code::kNotFound;
  const DeviceIndex device = slice(of)->device;
  const std::string tenant = session(owner)->tenant;
  const std::uint64_t piece = policy.devices[device].granularity.count;
  if (bytes.is_zero() || bytes.count > std::numeric_limits<std::uint64_t>::max() - piece + 1) {
    return Code::kInvalidArgument;
  }
  const std::uint64_t asked = (bytes.count + piece - 1) / piece * piece;
  if (asked > policy.devices[device].pool.count) return Code::kResourceExhausted;
  const auto wanted = static_cast<Number>(asked);
  if (wanted > slice(of)->limit - held(of) - waiting(of)) return Code::kResourceExhausted;
  const Number kept = charged(tenant, device, Charge::kOffered) + charged(tenant, device, Charge::kActive);
  if (wanted > ceiling(tenant, device) - kept) return Code::kResourceExhausted;
  std::size_t own = 0;
  for (const RequestRecord& one : requests) own += one.session == owner && !one.assembling ? 1 : 0;
  if (own >= policy.max_requests_per_session) return Code::kResourceExhausted;
  const bool patient = wait > Duration::zero();
  if (is_any_returning(device)) wait = std::max(wait, policy.return_grace);
  requests.push_back({id, owner, of, tenant, device, wanted, now + wait, patient, false});
  settle();
  if (wait > Duration::zero() || request(id)->assembling) return std::nullopt;
  cancel(id);
  return Code::kResourceExhausted;
}

void Reference::cancel(RequestId id) {
  std::erase_if(requests, [&](const RequestRecord& one) { return one.id == id; });
}

std::optional<Code> Reference::accept(SessionId owner, GrantId grant) {
  bool found = false;
  for (LeaseRecord& lease : leases) {
    if (lease.grant != grant || lease.session != owner || lease.state != Charge::kOffered) continue;
    lease.state = Charge::kActive;
    found = true;
  }
  return found ? std::nullopt : std::optional(Code::kNotFound);
}

std::optional<Code> Reference::give_back(SessionId owner, SliceId from, const std::vector<LeaseId>& ids) {
  if (session(owner) == nullptr || !session(owner)->alive) return Code::kUnauthenticated;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (std::find(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i), ids[i]) !=
        ids.begin() + static_cast<std::ptrdiff_t>(i)) {
      return Code::kNotFound;
    }
    bool on_loan = false;
    for (const LeaseRecord& lease : leases) {
      on_loan |= lease.id == ids[i] && lease.session == owner && lease.slice == from &&
                 (lease.state == Charge::kOffered || lease.state == Charge::kActive);
    }
    if (!on_loan) return Code::kNotFound;
  }
  for (LeaseRecord& lease : leases) {
    if (std::find(ids.begin(), ids.end(), lease.id) == ids.end()) continue;
    lease.state = Charge::kReturning;
    lease.in_store = true;
  }
  return std::nullopt;
}

void Reference::end(SessionId id, Farewell farewell) {
  for (SessionRecord& one : sessions) {
    if (one.id == id) one.alive = false;
  }
  std::erase_if(requests, [&](const RequestRecord& one) { return one.session == id; });
  for (LeaseRecord& lease : leases) {
    if (lease.session != id || lease.in_store) continue;
    lease.state = farewell == Farewell::kLost ? Charge::kQuarantined : Charge::kReturning;
    lease.in_store = farewell != Farewell::kLost;
  }
}

std::vector<std::pair<RequestId, Code>> Reference::expire(TimePoint now) {
  std::vector<std::pair<RequestId, Code>> expired;
  for (const RequestRecord& one : requests) {
    if (one.assembling || one.deadline > now) continue;
    expired.emplace_back(one.id, one.patient ? Code::kDeadlineExceeded : Code::kResourceExhausted);
  }
  for (const auto& [id, code] : expired) cancel(id);
  return expired;
}

std::optional<Code> Reference::apply(const Policy& next) {
  std::map<std::string, Tenant> after;
  for (const auto& [name, tenant] : tenants) {
    if (is_connected(name))
      after[name] = {false, next.others.value_or(std::vector<Quota>(next.devices.size()))};
  }
  for (const TenantRule& rule : next.tenants) after[rule.name] = {true, rule.quotas};
  for (DeviceIndex device = 0; device < next.devices.size(); ++device) {
    if (next.others && (*next.others)[device].guarantee > (*next.others)[device].limit)
      return Code::kInvalidArgument;
    Number promised = 0;
    for (const auto& [name, tenant] : after) {
      promised += number(tenant.quotas[device].guarantee);
      if (tenant.quotas[device].guarantee > tenant.quotas[device].limit) return Code::kInvalidArgument;
    }
    if (promised > pool(device)) return Code::kInvalidArgument;
  }
  tenants = after;
  policy = next;
  return std::nullopt;
}

// ---- What the driver does ----

bool Reference::retried(const Job& job) {
  std::vector<Failure> expected;
  for (const bool proofs : {true, false}) {
    for (const Failure& one : failures[job.device]) {
      if (static_cast<bool>(one.lease) == proofs) expected.push_back(one);
    }
  }
  constexpr std::size_t kMost = 256;  // in one job
  std::vector<Failure> later;
  while (expected.size() > kMost) {
    later.insert(later.begin(), expected.back());
    expected.pop_back();
  }
  if (job.steps.size() != expected.size()) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (job.steps[i].create.size() != 1 || number(job.steps[i].create[0].size) != expected[i].bytes)
      return false;
  }
  retries[job.device][job.id] = expected;
  failures[job.device] = later;
  return true;
}

void Reference::job_done(const Job& job, const JobResult& result) {
  const auto failed = [&](const Extent& extent) {
    return std::find(result.failed.begin(), result.failed.end(), extent.id) != result.failed.end();
  };
  const auto retry = retries[job.device].extract(job.id);
  for (std::size_t i = 0; i < job.steps.size(); ++i) {
    for (const Extent& extent : job.steps[i].create) {
      Failure attempt{number(extent.size), {}};
      if (!retry.empty()) attempt = retry.mapped()[i];
      const LeaseRecord* lent = job.steps[i].destroy.empty() ? nullptr : lease_of(job.steps[i].destroy[0]);
      if (lent != nullptr) attempt.lease = lent->id;
      attempt_ended(job.device, attempt, failed(extent));
    }
  }
}

void Reference::attempt_ended(DeviceIndex device, const Failure& attempt, bool failed) {
  if (attempt.lease && failed) {
    for (LeaseRecord& lease : leases) {
      if (lease.id == attempt.lease) lease.state = Charge::kQuarantined;
    }
    failures[device].push_back(attempt);
  } else if (attempt.lease) {
    std::erase_if(leases, [&](const LeaseRecord& lease) { return lease.id == attempt.lease; });
  } else if (failed) {
    const bool smallest = attempt.bytes == number(policy.devices[device].granularity);
    for (int part = 0; part < (smallest ? 1 : 4); ++part) {
      failures[device].push_back({smallest ? attempt.bytes : attempt.bytes / 4, {}});
    }
  }
}

// ---- Decisions ----

void Reference::settle() {
  for (;;) {
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      if (sessions[i].alive || holds_leases(sessions[i].id)) continue;
      forgotten.insert(sessions[i].id);
      std::erase_if(slices, [&](const SliceRecord& one) { return one.session == sessions[i].id; });
      sessions.erase(sessions.begin() + static_cast<std::ptrdiff_t>(i--));
    }
    std::erase_if(tenants,
                  [&](const auto& one) { return !one.second.configured && !is_connected(one.first); });
    if (!grant_first_that_may()) return;
  }
}

bool Reference::grant_first_that_may() {
  for (DeviceIndex device = 0; device < policy.devices.size(); ++device) {
    bool somebody_ahead_lacks_memory = false;
    for (RequestRecord& one : requests) {
      if (one.device != device || one.assembling) continue;
      const bool guaranteed = one.bytes <= unmet(one.tenant, device);
      if (somebody_ahead_lacks_memory && !guaranteed) continue;
      const Obstacle what = obstacle(one);
      if (what == Obstacle::kMemory) somebody_ahead_lacks_memory = true;
      if (what == Obstacle::kNone) return one.assembling = true;
    }
  }
  return false;
}

Reference::Obstacle Reference::obstacle(const RequestRecord& one) const {
  if (one.bytes > ceiling(one.tenant, one.device) - charged(one.tenant, one.device)) return Obstacle::kOwn;
  if (one.bytes > free(one.device) - unmet_of_others(one.tenant, one.device)) return Obstacle::kMemory;
  return Obstacle::kNone;
}

void Reference::assembled(RequestId id, const Grant& grant) {
  const RequestRecord asked = *request(id);
  cancel(id);
  for (const OfferedLease& one : grant.leases) {
    leases.push_back({one.lease, grant.id, one.extent, asked.session, asked.slice, asked.tenant, asked.device,
                      Charge::kOffered, false});
  }
}

void Reference::unobtainable(RequestId id) { cancel(id); }

// ---- Counting ----

Number Reference::charged(const std::string& tenant, DeviceIndex device, std::optional<Charge> state) const {
  Number sum = 0;
  for (const LeaseRecord& lease : leases) {
    if (lease.tenant == tenant && lease.device == device && (!state || lease.state == *state))
      sum += lease.bytes();
  }
  for (const RequestRecord& one : requests) {
    if (one.assembling && one.tenant == tenant && one.device == device &&
        (!state || *state == Charge::kOffered)) {
      sum += one.bytes;
    }
  }
  return sum;
}

Number Reference::charged(DeviceIndex device) const {
  Number sum = assembling(device);
  for (const LeaseRecord& lease : leases) sum += lease.device == device ? lease.bytes() : 0;
  return sum;
}

bool Reference::is_any_returning(DeviceIndex device) const {
  for (const LeaseRecord& lease : leases) {
    if (lease.device == device && lease.state == Charge::kReturning) return true;
  }
  return false;
}

Number Reference::charged(SliceId id) const {
  Number sum = 0;
  for (const LeaseRecord& lease : leases) sum += lease.slice == id ? lease.bytes() : 0;
  for (const RequestRecord& one : requests) sum += one.slice == id && one.assembling ? one.bytes : 0;
  return sum;
}

Number Reference::held(SliceId id) const {
  Number sum = 0;
  for (const LeaseRecord& lease : leases) {
    const bool on_loan = lease.state == Charge::kOffered || lease.state == Charge::kActive;
    sum += lease.slice == id && on_loan ? lease.bytes() : 0;
  }
  for (const RequestRecord& one : requests) sum += one.slice == id && one.assembling ? one.bytes : 0;
  return sum;
}

Number Reference::assembling(DeviceIndex device) const {
  Number sum = 0;
  for (const RequestRecord& one : requests) sum += one.device == device && one.assembling ? one.bytes : 0;
  return sum;
}

Number Reference::waiting(SliceId id) const {
  Number sum = 0;
  for (const RequestRecord& one : requests) sum += one.slice == id && !one.assembling ? one.bytes : 0;
  return sum;
}

std::size_t Reference::waiting(DeviceIndex device, const std::string* tenant) const {
  std::size_t count = 0;
  for (const RequestRecord& one : requests) {
    count += one.device == device && !one.assembling && (tenant == nullptr || one.tenant == *tenant) ? 1 : 0;
  }
  return count;
}

Number Reference::missing(DeviceIndex device) const {
  Number sum = 0;
  for (const Failure& one : failures[device]) sum += one.lease ? 0 : one.bytes;
  for (const auto& [job, attempts] : retries[device]) {
    for (const Failure& one : attempts) sum += one.lease ? 0 : one.bytes;
  }
  return sum;
}

Number Reference::free(DeviceIndex device) const { return pool(device) - charged(device) - missing(device); }

Number Reference::unmet(const std::string& tenant, DeviceIndex device) const {
  const Number guarantee = number(tenants.at(tenant).quotas[device].guarantee);
  return std::max<Number>(0, guarantee - charged(tenant, device));
}

Number Reference::unmet_of_others(const std::string& tenant, DeviceIndex device) const {
  Number sum = 0;
  for (const auto& [name, one] : tenants) sum += name == tenant ? 0 : unmet(name, device);
  return sum;
}

Number Reference::ceiling(const std::string& tenant, DeviceIndex device) const {
  Number left = pool(device);
  for (const auto& [name, one] : tenants) left -= name == tenant ? 0 : number(one.quotas[device].guarantee);
  return std::min(left, number(tenants.at(tenant).quotas[device].limit));
}

// ---- Looking up ----

const Reference::SessionRecord* Reference::session(SessionId id) const {
  const auto found =
      std::find_if(sessions.begin(), sessions.end(), [&](const auto& one) { return one.id == id; });
  return found == sessions.end() ? nullptr : &*found;
}
const Reference::SliceRecord* Reference::slice(SliceId id) const {
  const auto found =
      std::find_if(slices.begin(), slices.end(), [&](const auto& one) { return one.id == id; });
  return found == slices.end() ? nullptr : &*found;
}
const Reference::RequestRecord* Reference::request(RequestId id) const {
  const auto found =
      std::find_if(requests.begin(), requests.end(), [&](const auto& one) { return one.id == id; });
  return found == requests.end() ? nullptr : &*found;
}
const Reference::LeaseRecord* Reference::lease_of(ExtentId id) const {
  const auto found =
      std::find_if(leases.begin(), leases.end(), [&](const auto& one) { return one.extent.id == id; });
  return found == leases.end() ? nullptr : &*found;
}
bool Reference::holds_leases(SessionId id) const {
  return std::any_of(leases.begin(), leases.end(), [&](const auto& one) { return one.session == id; });
}
bool Reference::is_connected(const std::string& tenant) const {
  return std::any_of(sessions.begin(), sessions.end(), [&](const auto& one) { return one.tenant == tenant; });
}

}  // namespace gpumem::core::model
