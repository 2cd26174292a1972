#include "tests/model/reference.h"

#include <algorithm>
#include <limits>

namespace gpumem::core::model {

Reference::Reference(const Policy& start) : policy(start) {
  for (const TenantRule& rule : policy.tenants) tenants[rule.name] = {true, rule.quotas, rule.parent};
  failed_proofs.resize(policy.devices.size());
  retries.resize(policy.devices.size());
  for (const DevicePolicy& device : policy.devices) missing.push_back(number(device.pool));
  hindrance.resize(policy.devices.size());
}

// ---- What happens ----

std::optional<Code> Reference::connect(std::uint32_t uid, std::string& tenant) const {
  bool has_guarantee = false;
  const auto note_guarantees = [&](const std::vector<Quota>& quotas) {
    for (const Quota& quota : quotas) has_guarantee |= !quota.guarantee.is_zero();
  };
  std::string parent;
  for (const TenantRule& rule : policy.tenants) {
    if (rule.uid != uid) continue;
    tenant = rule.name;
    parent = rule.parent;
    note_guarantees(rule.quotas);
  }
  if (tenant.empty() && !policy.others) return Code::kPermissionDenied;
  const bool is_one_of_others = tenant.empty();
  if (is_one_of_others) {
    tenant = "uid:" + std::to_string(uid);
    parent = policy.others_parent;
    note_guarantees(*policy.others);
  }
  while (!parent.empty()) {
    const auto above = std::ranges::find(policy.tenants, parent, &TenantRule::name);
    note_guarantees(above->quotas);
    parent = above->parent;
  }
  // The last eighth of all sessions is for tenants with guarantees.
  const std::size_t most =
      has_guarantee ? policy.max_sessions : policy.max_sessions - policy.max_sessions / 8;
  if (sessions.size() >= most) return Code::kResourceExhausted;
  if (!is_one_of_others) return std::nullopt;
  if (tenants.contains(tenant)) return std::nullopt;
  auto with = tenants;
  with[tenant] = {false, *policy.others, {}};
  return check(with, policy) ? std::optional(Code::kResourceExhausted) : std::nullopt;
}

void Reference::connected(SessionId id, const std::string& tenant, std::uint32_t uid,
                          const std::vector<Quota>& quotas) {
  sessions.push_back({id, tenant, uid, true, {}});
  if (!tenants.contains(tenant)) tenants[tenant] = {false, quotas, {}};
}

std::optional<Code> Reference::close_slice(SessionId owner, SliceId id) {
  if (session(owner) == nullptr || !session(owner)->alive) return Code::kUnauthenticated;
  if (slice(id) == nullptr || slice(id)->session != owner) return Code::kNotFound;
  if (held(id) != 0 || waiting(id) != 0) return Code::kFailedPrecondition;
  std::erase_if(slices, [&](const SliceRecord& one) { return one.id == id; });
  return std::nullopt;
}

std::optional<Code> Reference::grow(RequestId id, SessionId owner, const std::vector<GrowthPart>& asked,
                                    Duration wait, TimePoint now) {
  if (asked.empty()) return Code::kInvalidArgument;
  if (session(owner) == nullptr || !session(owner)->alive) return Code::kUnauthenticated;
  const std::string tenant = session(owner)->tenant;
  Request::Parts parts;
  if (const auto wrong = parts_of(owner, asked, parts)) return wrong;
  for (const Request::Part& part : parts) {
    if (is_hopeless(tenant, part)) return Code::kResourceExhausted;
  }
  std::size_t own = 0;
  for (const RequestRecord& one : requests) own += one.request.session == owner && !one.assembling() ? 1 : 0;
  if (own >= policy.max_requests_per_session) return Code::kResourceExhausted;
  for (Request::Part& part : parts) {
    const Number room = slice(part.slice)->limit - held(part.slice) - waiting(part.slice);
    part.bytes = std::min(part.bytes, Bytes{static_cast<std::uint64_t>(room)});
  }
  const bool patient = wait > Duration::zero();
  wait = patience(tenant, parts, wait);
  requests.push_back({{id, owner, {}, std::move(parts), now, wait, now + wait}, tenant, patient, false, {}});
  settle();
  if (wait > Duration::zero() || request(id)->assembling()) return std::nullopt;
  cancel(id);
  return Code::kResourceExhausted;
}

std::optional<Code> Reference::parts_of(SessionId owner, const std::vector<GrowthPart>& asked,
                                        Request::Parts& parts) const {
  for (const GrowthPart& one : asked) {
    if (slice(one.slice) == nullptr || slice(one.slice)->session != owner) return Code::kNotFound;
    const DeviceIndex device = slice(one.slice)->device;
    if (std::ranges::count(parts, device, &Request::Part::device) != 0) return Code::kInvalidArgument;
    const std::uint64_t piece = policy.devices[device].granularity.count;
    const auto whole = [&](Bytes bytes) { return bytes.count / piece + (bytes.count % piece == 0 ? 0 : 1); };
    const std::uint64_t wanted = whole(one.bytes);
    const std::uint64_t least = whole(one.min_bytes.is_zero() ? one.bytes : one.min_bytes);
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    if (least == 0 || least > wanted || wanted > kMost / piece) return Code::kInvalidArgument;
    parts.push_back({one.slice, device, {wanted * piece}, {least * piece}});
  }
  return std::nullopt;
}

// It could not be granted even if nobody else had anything.
bool Reference::is_hopeless(const std::string& tenant, const Request::Part& part) const {
  if (part.min_bytes > policy.devices[part.device].pool) return true;
  const Number least = number(part.min_bytes);
  if (least > slice(part.slice)->limit - held(part.slice) - waiting(part.slice)) return true;
  return exceeds_ceiling(tenant, part);
}

bool Reference::exceeds_ceiling(const std::string& tenant, const Request::Part& part) const {
  const Standing now = standing();
  return number(part.min_bytes) > ceiling(now.books, now.nodes.at(tenant), part.device);
}

Duration Reference::patience(const std::string& tenant, const Request::Parts& parts, Duration wait) const {
  const Standing now = standing();
  for (const Request::Part& part : parts) {
    if (is_any_returning(part.device)) wait = std::max(wait, policy.return_grace);
    const ReclaimPolicy& reclaim = policy.devices[part.device].reclaim;
    const Number claimable = Accounts(now.books, part.device).claimable(now.nodes.at(tenant));
    if (reclaim.lend_guarantees && number(part.min_bytes) <= claimable)
      wait = std::max(wait, reclaim.deadline + policy.return_grace);
  }
  return wait;
}

std::optional<Code> Reference::declare(SessionId owner, DeviceIndex device, Bytes bytes) {
  if (session(owner) == nullptr || !session(owner)->alive) return Code::kUnauthenticated;
  if (bytes > policy.devices[device].total) return Code::kInvalidArgument;
  for (SessionRecord& one : sessions) {
    if (one.id == owner) one.declared[device] = number(bytes);
  }
  return std::nullopt;
}

void Reference::age(TimePoint now) {
  for (RequestRecord& one : requests) one.overdue |= one.request.asked + policy.aging <= now;
}

void Reference::cancel(RequestId id) {
  std::erase_if(requests, [&](const RequestRecord& one) { return one.id() == id; });
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

void Reference::end(SessionId id, SessionEnd end) {
  for (SessionRecord& one : sessions) {
    if (one.id != id) continue;
    one.alive = false;
    one.exited = one.exited || end == SessionEnd::kExited;
    if (one.exited || end == SessionEnd::kReleased) one.declared.clear();
  }
  std::erase_if(requests, [&](const RequestRecord& one) { return one.request.session == id; });
  for (LeaseRecord& lease : leases) {
    if (lease.session != id) continue;
    if (lease.in_store && end == SessionEnd::kExited) {  // proved anew
      lease.state = Charge::kReturning;
      preferred.insert(lease.id);
    }
    if (lease.in_store) continue;
    lease.state = end == SessionEnd::kLost ? Charge::kQuarantined : Charge::kReturning;
    lease.in_store = end != SessionEnd::kLost;
  }
}

std::vector<std::pair<RequestId, Code>> Reference::expire(TimePoint now) {
  std::vector<std::pair<RequestId, Code>> expired;
  for (const RequestRecord& one : requests) {
    if (one.assembling() || one.request.deadline > now) continue;
    expired.emplace_back(one.id(), one.patient ? Code::kDeadlineExceeded : Code::kResourceExhausted);
  }
  for (const auto& [id, code] : expired) cancel(id);
  return expired;
}

std::optional<Code> Reference::apply(const Policy& next) {
  std::map<std::string, Tenant> after;
  for (const TenantRule& rule : next.tenants) after[rule.name] = {true, rule.quotas, rule.parent};
  if (const auto wrong = check(after, next)) return wrong;
  std::map<SessionId, std::string> owners;
  for (const SessionRecord& one : sessions) {
    const std::string owner = owner_under(next, one);
    owners[one.id] = owner;
    if (!after.contains(owner))
      after[owner] = {false, next.others.value_or(std::vector<Quota>(next.devices.size())), {}};
  }
  for (DeviceIndex device = 0; next.others && device < next.devices.size(); ++device) {
    if ((*next.others)[device].guarantee > (*next.others)[device].limit) return Code::kInvalidArgument;
  }
  if (const auto wrong = check(after, next)) return wrong;
  tenants = after;
  policy = next;
  for (SessionRecord& one : sessions) one.tenant = owners.at(one.id);
  for (LeaseRecord& one : leases) one.tenant = owners.at(one.session);
  for (RequestRecord& one : requests) one.tenant = owners.at(one.request.session);
  return std::nullopt;
}

std::vector<std::pair<RequestId, Code>> Reference::refuse_hopeless(TimePoint now) {
  std::vector<std::pair<RequestId, Code>> refused;
  for (const RequestRecord& one : requests) {
    const auto exceeds = [&](const Request::Part& part) { return exceeds_ceiling(one.tenant, part); };
    if (one.assembling() || std::ranges::none_of(one.request.parts, exceeds)) continue;
    const bool has_waited = one.patient && one.request.asked < now;
    refused.emplace_back(one.id(), has_waited ? Code::kDeadlineExceeded : Code::kResourceExhausted);
  }
  for (const auto& [id, code] : refused) cancel(id);
  return refused;
}

// Whom no rule covers keeps its name.
std::string Reference::owner_under(const Policy& next, const SessionRecord& session) {
  for (const TenantRule& rule : next.tenants) {
    if (rule.uid == session.uid) return rule.name;
  }
  const auto is_anothers = [&](const TenantRule& rule) { return rule.name == session.tenant && rule.uid; };
  const bool keeps_its_name = !next.others && std::ranges::none_of(next.tenants, is_anothers);
  return keeps_its_name ? session.tenant : "uid:" + std::to_string(session.uid);
}

std::optional<Code> Reference::check(const std::map<std::string, Tenant>& tenants, const Policy& policy) {
  const Standing tree = tree_of(tenants, policy);
  for (DeviceIndex device = 0; device < policy.devices.size(); ++device) {
    const Accounts accounts(tree.books, device);
    if (accounts.of(Books::kTop).promised > number(policy.devices[device].pool))
      return Code::kInvalidArgument;
    for (NodeIndex node = 1; node < tree.books.nodes.size(); ++node) {
      if (accounts.of(node).promised > accounts.limit(node)) return Code::kInvalidArgument;
    }
  }
  return std::nullopt;
}

// ---- What the driver does ----

bool Reference::retried(const Job& job) {
  constexpr std::size_t kMost = 256;  // proofs in one job
  std::vector<Proof> expected = std::exchange(failed_proofs[job.device], {});
  std::stable_partition(expected.begin(), expected.end(),
                        [&](const Proof& one) { return preferred.contains(one.lease); });
  if (expected.size() > kMost) {
    failed_proofs[job.device].assign(expected.begin() + kMost, expected.end());
    expected.resize(kMost);
  }
  for (const Proof& one : expected) preferred.erase(one.lease);
  if (job.steps.size() < expected.size()) return false;
  Number refill = 0;
  for (std::size_t i = 0; i < job.steps.size(); ++i) {
    const Job::Step& step = job.steps[i];
    const bool refills = i >= expected.size();
    if (step.create.size() != 1 || step.keep_free.has_value() != refills) return false;
    if (!refills && number(step.create[0].size) != expected[i].bytes) return false;
    if (refills) refill += number(step.create[0].size);
  }
  retries[job.device][job.id] = std::move(expected);
  return refill <= missing[job.device];
}

void Reference::job_done(const Job& job, const JobResult& result) {
  const auto failed = [&](const Extent& extent) {
    return std::find(result.failed.begin(), result.failed.end(), extent.id) != result.failed.end();
  };
  const auto retry = retries[job.device].extract(job.id);
  for (std::size_t i = 0; i < job.steps.size(); ++i) {
    const Job::Step& step = job.steps[i];
    for (std::size_t member = 0; member < step.group.size(); ++member) {
      const LeaseRecord& lent = *lease_of(step.destroy[member]);
      const bool is_held = failed(step.create[0]) && failed(step.group[member].alone);
      proof_ended(job.device, {lent.bytes(), lent.id}, is_held);
    }
    for (const Extent& extent : step.create) {
      const LeaseRecord* lent = step.destroy.empty() ? nullptr : lease_of(step.destroy[0]);
      if (!step.group.empty()) continue;
      if (step.keep_free)
        missing[job.device] -= failed(extent) ? 0 : number(extent.size);
      else if (!retry.empty())
        proof_ended(job.device, retry.mapped()[i], failed(extent));
      else if (lent != nullptr)
        proof_ended(job.device, {number(extent.size), lent->id}, failed(extent));
      else
        missing[job.device] += failed(extent) ? number(extent.size) : 0;
    }
  }
}

void Reference::proof_ended(DeviceIndex device, const Proof& proof, bool failed) {
  if (!failed) {
    preferred.erase(proof.lease);
    std::erase_if(leases, [&](const LeaseRecord& lease) { return lease.id == proof.lease; });
    return;
  }
  for (LeaseRecord& lease : leases) {
    if (lease.id == proof.lease) lease.state = Charge::kQuarantined;
  }
  failed_proofs[device].push_back(proof);
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
    if (!grant_what_may_be()) return;
  }
}

bool Reference::grant_what_may_be() {
  Standing now = standing();
  const auto granted = admit(now.books, now.queue);
  for (const Decision& one : granted) {
    for (RequestRecord& record : requests) {
      if (record.id() == one.request.id) record.granted = one.bytes;
    }
  }
  return !granted.empty();
}

Reference::Standing Reference::tree_of(const std::map<std::string, Tenant>& tenants, const Policy& policy) {
  std::vector<Books::Device> devices;
  for (const DevicePolicy& device : policy.devices) {
    devices.push_back({number(device.pool), number(device.granularity), 0, device.reclaim.lend_guarantees});
  }
  Standing standing{Books(std::move(devices)), {}, {}};
  for (const auto& [name, tenant] : tenants) standing.nodes[name] = standing.books.add(tenant.quotas);
  for (const auto& [name, tenant] : tenants) {
    if (!tenant.parent.empty())
      standing.books.nodes[standing.nodes.at(name)].parent = standing.nodes.at(tenant.parent);
  }
  return standing;
}

Reference::Standing Reference::standing() const {
  Standing now = tree_of(tenants, policy);
  for (DeviceIndex device = 0; device < policy.devices.size(); ++device) {
    now.books.devices[device].missing = missing[device];
    for (const auto& [name, node] : now.nodes) {
      now.books.nodes[node].leases[device] = charged(name, device);
      now.books.nodes[node].outside[device] = outside(name, device);
    }
  }
  // Nobody can be asked for what an ended process has left behind.
  std::map<std::pair<NodeIndex, DeviceIndex>, Number> left;
  for (const LeaseRecord& lease : leases) {
    if (lease.in_store && lease.state == Charge::kQuarantined && session(lease.session)->exited)
      left[{now.nodes.at(lease.tenant), lease.device}] += lease.bytes();
  }
  for (const auto& [of, bytes] : left)
    if (bytes > hindrance[of.second]) now.books.nodes[of.first].barred.insert(of.second);
  for (const RequestRecord& one : requests) {
    if (!one.assembling()) now.queue.push_back({now.nodes.at(one.tenant), one.request, one.overdue});
  }
  return now;
}

void Reference::assembled(RequestId id, const Grant& grant) {
  const RequestRecord asked = *request(id);
  cancel(id);
  for (const OfferedLease& one : grant.leases) {
    leases.push_back({one.lease, grant.id, one.extent, asked.request.session, one.slice, asked.tenant,
                      one.device, Charge::kOffered, false});
  }
}

void Reference::unobtainable(RequestId id) { cancel(id); }

}  // namespace gpumem::core::model
