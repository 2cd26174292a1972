#include <algorithm>
#include <array>

#include "tests/model/world.h"

// What may happen to a broker.

namespace gpumem::core::model {
namespace {

constexpr std::uint64_t kMostProcesses = 12;

}  // namespace

void World::step() {
  happen();
  if (one_in(3)) look(below(jobs.size()));
}

void World::happen() {
  using Event = void (World::*)();
  struct Choice {
    const char* name;
    Event event;
    std::uint64_t weight;
  };
  static constexpr std::array kChoices{Choice{"connect", &World::connect, 10},
                                       Choice{"open slice", &World::open_slice, 14},
                                       Choice{"close slice", &World::close_slice, 3},
                                       Choice{"grow", &World::grow, 50},
                                       Choice{"cancel", &World::cancel, 5},
                                       Choice{"accept", &World::accept, 20},
                                       Choice{"give back", &World::give_back, 14},
                                       Choice{"end session", &World::end_session, 6},
                                       Choice{"pass time", &World::pass_time, 15},
                                       Choice{"reload", &World::reload, 1},
                                       Choice{"disturb", &World::disturb, 2},
                                       Choice{"declare", &World::declare, 4},
                                       Choice{"heed", &World::heed, 10},
                                       Choice{"obey signals", &World::obey_signals, 5},
                                       Choice{"all heed", &World::all_heed, 1}};
  if (one_in(3)) {
    last_event_ = "run job";
    return run_job(below(jobs.size()));
  }
  std::uint64_t sum = 0;
  for (const Choice& choice : kChoices) sum += choice.weight;
  std::uint64_t pick = below(sum);
  for (const Choice& choice : kChoices) {
    if (pick < choice.weight) {
      last_event_ = choice.name;
      return (this->*choice.event)();
    }
    pick -= choice.weight;
  }
}

// Mostly one whose session is alive.
World::Process* World::some_process() {
  if (processes_.empty()) return nullptr;
  Process* process = nullptr;
  for (int tries = 0; tries < 4; ++tries) {
    process = &processes_[below(processes_.size())];
    const auto* session = reference_.session(process->session);
    if (session != nullptr && session->alive) break;
  }
  return process;
}

SliceId World::some_slice_of(const Process& process) {
  if (one_in(60)) return SliceId{below(50)};
  std::vector<SliceId> own;
  for (const auto& slice : reference_.slices) {
    if (slice.session == process.session) own.push_back(slice.id);
  }
  return own.empty() ? SliceId{} : own[below(own.size())];
}

Bytes World::some_size() {
  if (one_in(50)) return {std::array<std::uint64_t, 4>{0, 1, 1ULL << 63, ~0ULL}[below(4)]};
  const auto largest = static_cast<std::uint64_t>(shape_.largest_growth);
  return {1 + below(one_in(3) ? largest : largest / 6 + 1)};
}

void World::connect() {
  if (processes_.size() >= kMostProcesses) return;
  const auto uid = static_cast<std::uint32_t>(1 + below(shape_.users));
  std::string tenant;
  const auto expected = reference_.connect(uid, tenant);
  const Peer peer{.pid = ++last_pid_, .uid = uid, .gids = {uid}, .command = "x"};
  const auto answer = broker.open_session(peer, "", now);
  expect_same(expected, answer ? Result<void>() : Result<void>(answer.error()), "open_session");
  if (!answer) return compare();
  reference_.connected(*answer, tenant, uid, reference_.policy.others.value_or(std::vector<Quota>()));
  require(broker.tenant_name(*answer) == tenant, "another tenant");
  processes_.push_back({*answer, {}, {}, one_in(8), one_in(3), false, last_pid_});
  compare();
}

void World::open_slice() {
  const Process* process = some_process();
  if (process == nullptr) return;
  const DeviceIndex device = below(jobs.size());
  const Bytes limit = one_in(4) ? some_size() : Bytes{};
  const auto answer = broker.open_slice(process->session, {shape_.policy.devices[device].uuid, limit, ""});
  if (answer) {
    require(reference_.session(process->session) != nullptr && reference_.session(process->session)->alive,
            "a slice for a session that is over");
    require(answer->limit <= reference_.policy.devices[device].pool, "a slice larger than the pool");
    reference_.slices.push_back({answer->id, process->session, device, number(answer->limit)});
  }
  compare();
}

void World::close_slice() {
  const Process* process = some_process();
  if (process == nullptr) return;
  const SliceId slice = some_slice_of(*process);
  const auto expected = reference_.close_slice(process->session, slice);
  expect_same(expected, broker.close_slice(process->session, {slice}, now), "close_slice");
  compare();
}

std::vector<GrowthPart> World::some_parts(const Process& process) {
  std::vector<GrowthPart> parts;
  const std::uint64_t count = one_in(4) ? below(4) : 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Bytes wanted = some_size();
    parts.push_back({some_slice_of(process), wanted, one_in(3) ? Bytes{below(wanted.count + 2)} : Bytes{}});
  }
  return parts;
}

void World::grow() {
  const Process* process = some_process();
  if (process == nullptr) return;
  const RequestId id = request_ids_.next();
  const auto parts = some_parts(*process);
  if (!parts.empty() && !parts.front().slice && !one_in(10)) return open_slice();
  const Duration wait = one_in(4) ? Duration{} : std::chrono::milliseconds(1 + below(20'000));
  asked_.push_back(id);
  const auto expected = reference_.grow(id, process->session, parts, wait, now);
  if (expected) refusals_[id] = *expected;
  broker.grow(id, process->session, {parts, wait}, now);
  compare();
}

void World::cancel() {
  if (asked_.empty()) return;
  const std::size_t recent = std::min<std::size_t>(asked_.size(), 20);
  const RequestId id = asked_[asked_.size() - 1 - below(recent)];
  const auto* request = reference_.request(id);
  if (request != nullptr) reference_.cancel(id);
  broker.cancel(id, now);
  compare();
}

void World::accept() {
  if (grants_.empty()) return;
  const std::size_t at = below(grants_.size());
  auto [session, grant] = grants_[at];
  if (one_in(20) && some_process() != nullptr) session = some_process()->session;
  const auto expected = reference_.accept(session, grant);
  expect_same(expected, broker.accept(session, grant), "accept");
  if (!expected || one_in(2)) grants_.erase(grants_.begin() + static_cast<std::ptrdiff_t>(at));
  compare();
}

void World::give_back() {
  Process* process = some_process();
  if (process == nullptr || process->leases.empty()) return;
  const SliceId slice = process->leases[below(process->leases.size())].first;
  std::vector<LeaseId> ids;
  for (const auto& [of, lease] : process->leases) {
    if (of == slice && !one_in(4)) ids.push_back(lease);
  }
  if (one_in(30)) ids.emplace_back(LeaseId{below(5000)});
  if (one_in(30) && !ids.empty()) ids.push_back(ids.front());
  give_back(*process, slice, ids);
}

void World::give_back(Process& process, SliceId slice, const std::vector<LeaseId>& ids) {
  const auto expected = reference_.give_back(process.session, slice, ids);
  if (!expected && (!process.hostile || one_in(2))) {
    for (const auto& lease : reference_.leases) {
      if (std::ranges::find(ids, lease.id) == ids.end()) continue;
      if (std::erase(process.held, lease.extent.id) != 0) driver.let_go(lease.extent.id);
    }
  }
  if (!expected || one_in(3)) {  // else it forgets nothing, and may try the same again
    std::erase_if(process.leases,
                  [&](const auto& one) { return std::ranges::find(ids, one.second) != ids.end(); });
  }
  expect_same(expected, broker.give_back(process.session, {slice, ids}, now), "give_back");
  compare();
}

void World::declare() {
  Process* process = some_process();
  if (process == nullptr) return;
  const DeviceIndex device = below(jobs.size());
  const Bytes bytes = one_in(2) ? Bytes{} : Bytes{some_size().count / 4};
  const auto expected = reference_.declare(process->session, device, bytes);
  expect_same(expected, broker.charge(process->session, {shape_.policy.devices[device].uuid, bytes}, now),
              "charge");
  if (!expected) take_declared(*process, device, bytes);
  compare();
}

// Memory that it takes by itself, as far as there is some; less than it says, now and then.
void World::take_declared(Process& process, DeviceIndex device, Bytes declared) {
  Bytes& taken = process.taken[device];
  driver.restore(device, std::exchange(taken, {}));
  taken = driver.steal(device, one_in(3) ? Bytes{below(declared.count + 1)} : declared);
}

void World::give_declared_back(Process& process) {
  for (const auto& [device, bytes] : process.taken) driver.restore(device, bytes);
  process.taken.clear();
}

void World::let_go_of_all(Process& process) {
  for (const ExtentId id : process.held) driver.let_go(id);
  process.held.clear();
}

// The process lives on after a lost lane and after a goodbye; its death is the end in any case.
void World::end_session() {
  if (processes_.empty()) return;
  Process* process = &processes_[below(processes_.size())];
  const SessionId session = process->session;
  const bool ended = reference_.session(session) == nullptr || !reference_.session(session)->alive;
  const auto end = ended && one_in(2) ? SessionEnd::kExited : static_cast<SessionEnd>(below(3));
  if (end == SessionEnd::kReleased && !process->hostile) let_go_of_all(*process);
  if (end == SessionEnd::kExited) return exit(*process);
  give_declared_back(*process);
  broker.session_ended(session, end, now);
  reference_.end(session, end);
  compare();
}

void World::exit(Process& process) {
  const SessionId session = process.session;
  let_go_of_all(process);
  give_declared_back(process);
  std::erase_if(processes_, [&](const Process& one) { return one.session == session; });
  broker.exited(session, now);
  reference_.end(session, SessionEnd::kExited);
  compare();
}

void World::run_job(DeviceIndex device) {
  if (jobs[device].empty()) return;
  const Job job = jobs[device].pop();
  const Number before = number(driver.handled(device));
  const JobResult result = driver.run(job);
  for (const Job::Step& step : job.steps) destroyed_.insert(step.destroy.begin(), step.destroy.end());
  if (job.turn != Job::Turn::kInOrder) {
    for (const Extent& extent : job.steps.front().create) {
      const bool created = std::ranges::find(result.failed, extent.id) == result.failed.end();
      remade_later_[device] -= created ? 0 : number(extent.size);
    }
    remade_later_[device] += before - number(driver.handled(device));
  }
  reference_.job_done(job, result);
  broker.job_done(result, now);
  compare();
}

void World::pass_time() {
  now += broker.next_deadline() && one_in(2) ? until_next_deadline()
                                             : Duration(std::chrono::milliseconds(below(500)));
  reference_.age(now);
  for (const auto& [id, code] : reference_.expire(now)) refusals_[id] = code;
  broker.tick(now);
  compare();
}

Policy World::changed_policy() {
  if (one_in(3)) return shape_.policy;
  Policy policy = shape_.policy;
  const auto change = [&](std::vector<Quota>& quotas) {
    for (DeviceIndex device = 0; device < quotas.size(); ++device) {
      const std::uint64_t pool = policy.devices[device].pool.count;
      quotas[device] = {{below(pool / 2)},
                        {below(pool * 3 / 2)},
                        static_cast<std::uint32_t>(1 + below(kMaxWeight)),
                        static_cast<std::uint32_t>(below(kMaxPriority + 1))};
    }
  };
  for (TenantRule& rule : policy.tenants) {
    if (one_in(2)) change(rule.quotas);
  }
  if (policy.others && one_in(2)) change(*policy.others);
  if (one_in(4)) policy.others.reset();
  if (!policy.tenants.empty() && one_in(4)) policy.tenants.pop_back();
  return policy;
}

void World::reload() {
  const Policy policy = changed_policy();
  const auto expected = reference_.apply(policy);
  if (!expected) {
    for (const auto& [id, code] : reference_.refuse_hopeless(now)) refusals_[id] = code;
  }
  expect_same(expected, broker.apply(policy, now), "apply");
  compare();
}

void World::disturb() {
  const DeviceIndex device = below(jobs.size());
  switch (below(4)) {
    case 0: flaky_ = !flaky_; break;
    case 1: stolen_[device] += driver.steal(device, some_size()); break;
    case 2: driver.restore(device, std::exchange(stolen_[device], {})); break;
    default:
      if (Process* process = some_process(); process != nullptr && process->hostile) {
        // Only what is not on loan any more: a client that stops using a lease of its own is nobody's matter.
        let_go_of_all(*process);
      }
  }
  compare();
}

void World::finish() {
  last_event_ = "finish";
  flaky_ = false;
  for (DeviceIndex device = 0; device < jobs.size(); ++device)
    driver.restore(device, std::exchange(stolen_[device], {}));
  while (!processes_.empty()) {
    exit(processes_.back());
  }
  for (int rounds = 0; rounds < 20'000 && fault_.empty(); ++rounds) {
    const bool busy = has_jobs();
    for (DeviceIndex device = 0; device < jobs.size(); ++device) run_job(device);
    if (busy) continue;
    if (!broker.next_deadline()) break;
    now += until_next_deadline();
    reference_.age(now);
    broker.tick(now);
    compare();
  }
  require(broker.settled(), "the broker never settles");
  require(broker.sessions().empty(), "sessions are left");
  for (DeviceIndex device = 0; device < jobs.size(); ++device) {
    const DeviceView view = broker.devices()[device];
    require(view.charges.total().is_zero(), "charges are left");
    require(view.warm == view.policy.pool && driver.handled(device) == view.policy.pool,
            "the pool is not whole");
    look(device);
    require(broker.reconciliation(device).accounting.unexplained() == 0, "memory is unexplained in the end");
  }
}

}  // namespace gpumem::core::model
