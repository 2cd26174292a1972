#include "client/cli/explain/program.h"

#include <algorithm>
#include <utility>

#include "base/text/device_name.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

bool is_of(const Subject& subject, const v1::SessionInfo& session) {
  return subject.job != 0 ? session.job() == subject.job : session.pid() == subject.pid;
}

/// The sums of the subject's sessions on one device.
struct Sums {
  std::uint64_t held = 0, returning = 0, quarantined = 0;
  std::size_t untold = 0;  // sessions
};

Sums add_sessions(const Subject& subject, const Ledger& ledger, DeviceUse& use) {
  Sums sums;
  for (const v1::SessionInfo& session : ledger.sessions.sessions()) {
    if (!is_of(subject, session)) continue;
    for (const v1::SessionMemory& memory : session.memory()) {
      if (memory.device() != use.device) continue;
      sums.held += memory.held();
      sums.returning += memory.returning();
      sums.quarantined += memory.quarantined();
      // A page that nobody has written to is all zeros.
      const bool is_told = memory.told() && (memory.reserved() != 0 || memory.held() == 0);
      sums.untold += is_told ? 0 : 1;
      use.reserved += memory.reserved();
      use.committed += memory.committed();
      use.in_use += memory.in_use();
    }
    for (const v1::SharedMemory& shared : session.shared())
      if (shared.device() == use.device) use.imported += shared.imported();
  }
  return sums;
}

Line lent_line(const DeviceUse& use, const Sums& sums) {
  Line lent = line_of("lent", "lent by the broker", sums.held);
  if (!use.is_told) {
    if (sums.held != 0) lent.add(line_of("committed", "committed by its allocator", std::nullopt));
    return lent;
  }
  Line committed = line_of("committed", "committed by its allocator", use.committed);
  committed.add(line_of("in_use", "used, as the program says", use.in_use));
  committed.add(line_of("cached", "cached, or not said to be used", use.committed - use.in_use));
  lent.add(std::move(committed));
  if (sums.held != use.committed)
    lent.add(line_of("other", "not in its allocator's figures", sums.held - use.committed));
  return lent;
}

struct Seen {
  bool has_parts = false;  // of all members
  bool is_told = false;    // the driver's own figure
  std::uint64_t used = 0, context = 0, declared = 0, past_broker = 0;
};

// A PID of 0 stands for any process that has none here: of a member in another PID namespace, or gone.
Seen seen_of(const std::vector<Member>& members, const v1::Reconciliation& look) {
  const auto is_member = [&](std::int64_t pid) {
    return std::ranges::find(members, pid, &Member::pid) != members.end();
  };
  const bool has_parts = look.has_accounting() && look.accounting().tells_processes() && !is_member(0);
  Seen seen{.has_parts = has_parts, .is_told = has_parts};
  for (const v1::SeenProcess& process : look.accounting().processes()) {
    if (process.pid() == 0 || !is_member(process.pid())) continue;
    seen.is_told = seen.is_told && process.used() != 0;
    seen.used += process.used();
    seen.context += process.context();
    seen.declared += process.declared();
    seen.past_broker += process.past_broker();
  }
  return seen;
}

/// Null: there is no such job, or it has nothing to do with the device.
const v1::JobUsage* usage_of(const v1::ListJobsResponse& jobs, std::uint64_t job, const std::string& device) {
  const v1::JobInfo* const known = find_job(jobs, job);
  if (known == nullptr) return nullptr;
  const auto found = std::ranges::find(known->devices(), device, &v1::JobUsage::device);
  return found == known->devices().end() ? nullptr : &*found;
}

std::string tenant_of(const Subject& subject, const std::vector<Member>& members,
                      const v1::ListJobsResponse& jobs) {
  if (const v1::JobInfo* const job = find_job(jobs, subject.job)) return job->tenant();
  return members.empty() ? std::string() : members.front().tenant;
}

std::uint64_t limit_of(const Subject& subject, const std::vector<Member>& members, const std::string& device,
                       const Ledger& ledger, const v1::ListJobsResponse& jobs) {
  std::uint64_t limit = TenantLimits(ledger.tenants).of(tenant_of(subject, members, jobs), device);
  const auto take = [&](std::uint64_t job) {
    const v1::JobUsage* const usage = usage_of(jobs, job, device);
    if (usage != nullptr) limit = std::min(limit, usage->limit());
  };
  for (const v1::SessionInfo& session : ledger.sessions.sessions())
    if (is_of(subject, session)) take(session.job());
  take(subject.job);
  return limit == kNoJobLimit ? 0 : limit;
}

DeviceUse use_of(const Subject& subject, const std::vector<Member>& members, const Ledger& ledger,
                 const v1::Reconciliation& look) {
  DeviceUse use{.device = look.device()};
  const Sums sums = add_sessions(subject, ledger, use);
  use.is_told = sums.untold == 0 && use.reserved != 0;
  const Seen seen = seen_of(members, look);
  if (seen.is_told) use.listed = seen.used;
  if (seen.has_parts) use.context = seen.context;
  const auto told = [&](std::uint64_t bytes) { return use.context ? std::optional(bytes) : std::nullopt; };
  use.sum = line_of(
      "held", "its memory",
      sums.held + sums.returning + sums.quarantined + seen.context + seen.declared + seen.past_broker);
  use.sum.add(lent_line(use, sums));
  use.sum.add(line_of("returning", "returning", sums.returning));
  use.sum.add(line_of("quarantined", "quarantined", sums.quarantined));
  use.sum.add(line_of("context", "context", use.context));
  use.sum.add(line_of("declared", "declared", told(seen.declared)));
  use.sum.add(line_of("past_broker", "past the broker",
                      use.device == kHostStore ? std::nullopt : told(seen.past_broker)));
  return use;
}

}  // namespace

const v1::JobInfo* find_job(const v1::ListJobsResponse& jobs, std::uint64_t id) {
  const auto found = std::ranges::find(jobs.jobs(), id, &v1::JobInfo::id);
  return found == jobs.jobs().end() ? nullptr : &*found;
}

Result<Named> named_by(std::int64_t number, const v1::GetStatusResponse& status,
                       const v1::ListJobsResponse& jobs, const v1::ListSessionsResponse& sessions) {
  const auto id = static_cast<std::uint64_t>(number);
  const std::string digits = std::to_string(number);
  const auto has_pid = [&](const v1::SessionInfo& one) { return number != 0 && one.pid() == number; };
  std::vector<std::pair<std::string, Named>> meanings;
  if (number < status.devices_size() && status.devices(static_cast<int>(number)).uuid() != kHostStore)
    meanings.emplace_back(device_name(id), status.devices(static_cast<int>(number)).uuid());
  if (std::ranges::any_of(sessions.sessions(), has_pid))
    meanings.emplace_back(std::string(kPidPrefix) + digits, Subject{.pid = number});
  if (find_job(jobs, id) != nullptr)
    meanings.emplace_back(std::string(kJobPrefix) + digits, Subject{.job = id});
  if (meanings.size() == 1) return meanings.front().second;
  if (meanings.empty() && number == 0) return Error{Code::kNotFound, "there is no device, process or job 0"};
  if (meanings.empty()) return Named(Subject{.pid = number});
  std::string names;
  for (const auto& [name, meaning] : meanings) names += (names.empty() ? "" : ", ") + name;
  return Error{Code::kInvalidArgument, "'" + digits + "' has several meanings: give one of " + names};
}

std::vector<Member> members_of(const Subject& subject, const v1::ListSessionsResponse& sessions,
                               const v1::ReconcileResponse& look) {
  std::vector<Member> members;
  const auto is_new = [&](std::int64_t pid) {
    return std::ranges::find(members, pid, &Member::pid) == members.end();
  };
  for (const v1::SessionInfo& one : sessions.sessions())
    if (is_of(subject, one) && is_new(one.pid()))
      members.push_back({one.pid(), one.uid(), one.command(), one.tenant()});
  if (!members.empty() || subject.job != 0) return members;
  for (const v1::Reconciliation& device : look.devices())
    for (const v1::SeenProcess& one : device.accounting().processes())
      if (one.pid() == subject.pid && is_new(one.pid()))
        members.push_back({one.pid(), one.uid(), one.command(), one.tenant()});
  return members;
}

std::vector<DeviceUse> uses_of(const Subject& subject, const std::vector<Member>& members,
                               const Ledger& ledger, const v1::ListJobsResponse& jobs,
                               const v1::ReconcileResponse& look) {
  std::vector<DeviceUse> uses;
  for (const v1::Reconciliation& device : look.devices()) {
    DeviceUse use = use_of(subject, members, ledger, device);
    const v1::JobUsage* const usage = usage_of(jobs, subject.job, use.device);
    const bool is_reserved = usage != nullptr && usage->reserved() != 0;
    const bool has_any = is_reserved || use.sum.bytes != 0 || use.reserved != 0 || use.imported != 0 ||
                         use.listed.value_or(0) != 0;
    if (!has_any) continue;
    use.limit = limit_of(subject, members, use.device, ledger, jobs);
    uses.push_back(std::move(use));
  }
  return uses;
}

}  // namespace gpumem::cli
