#include "tests/promises/world.h"

#include <algorithm>

#include "daemon/core/words/events.h"

// Time, the driver, and what the broker wants done. What processes do is in world_processes.cc.

namespace gpumem::core::promises {
namespace {

using std::chrono::milliseconds;

constexpr Duration kLookInterval = std::chrono::seconds(1);
constexpr Duration kLookTakes = milliseconds(5);
constexpr Duration kJobTakes = milliseconds(3);
constexpr Duration kDeathTakes = milliseconds(20);
constexpr Duration kContextTakes = milliseconds(100);
constexpr Duration kAcceptTakes = milliseconds(10);
constexpr std::size_t kHistory = 60;

}  // namespace

// The driver has the pools alone, not memory past the broker: a proof succeeds only on returned memory.
World::World(const Policy& policy, std::uint64_t seed)
    : CoreWorld(policy, totals_of(policy, &DevicePolicy::pool), TimePoint(std::chrono::hours(1))),
      random_(seed),
      books_(policy.devices.size()),
      promises_(broker, books_) {
  // Not of the device, of which it has a part. An elastic pool needs it, and memory that it leaves to others.
  driver.tells_free = false;
  for (DeviceIndex device = 0; device < policy.devices.size(); ++device) {
    const DevicePolicy& one = policy.devices[device];
    if (!one.is_elastic()) continue;
    driver.tells_free = elastic_ = true;
    driver.besides[device] = kept_for_contexts(one, {}) + kept_for_others(one);
  }
  broker.tick(now);
  absorb();
  look_regularly();
  pass(std::chrono::seconds(1));
}

// ---- Time ----

std::optional<TimePoint> World::next() const {
  auto next = broker.next_deadline();
  if (!timers_.empty() && (!next || timers_.begin()->first < *next)) next = timers_.begin()->first;
  return next;
}

void World::run_next(TimePoint at) {
  now = std::max(now, at);
  if (!timers_.empty() && timers_.begin()->first <= now) {
    const Timer timer = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    return timer();
  }
  broker.tick(now);
  absorb();
}

void World::pass(Duration time) {
  const TimePoint end = now + time;
  int standing = 0;
  for (auto at = next(); at && *at <= end && fault_.empty(); at = next()) {
    standing = *at > now ? 0 : standing + 1;
    if (standing > 10'000) return fail("time stands still: a deadline that has come stays");
    run_next(*at);
  }
  now = std::max(now, end);
}

void World::pass_to_next(Duration most) {
  const auto at = next();
  if (at && *at <= now + most)
    run_next(*at);
  else
    now += most;
}

void World::finish() {
  looks_ = false;
  while (!regions_.empty() && fault_.empty()) remove_region(regions_.begin()->first);
  while (!processes_.empty() && fault_.empty()) exit(*processes_.begin()->second);
  for (DeviceIndex device = 0; device < jobs.size(); ++device) look(device, true);
  pass(std::chrono::minutes(1));
  if (!timers_.empty()) fail("P5: something is still to be done");
  fail(promises_.check_end());
}

// ---- What the broker wants done ----

void World::absorb() {
  ++events_;
  FreedBytes by_name = follow_published();
  const std::vector<Event> events = broker.outbox().take_events();
  for (const Event& event : events) {
    if (event.kind == Event::Kind::kGranted) note_granted(event);
    const auto open = open_.find(event.request);
    // The broker expects a larger context than the process makes.
    if (event.kind == Event::Kind::kWaiting && open != open_.end() && open->second.is_context)
      open->second.least.front().second = event.bytes;
  }
  broker.outbox().take_touched();
  take_effects(*this);
  FreedBytes freed;
  for (const Event& event : events) {
    if (event.kind != Event::Kind::kFreed) continue;
    freed[{event.session, *event.device}] += event.bytes;
    if (event.job) jobs_used_[{event.job, *event.device}] = now;
  }
  for (const auto& [of, bytes] : freed) {
    const Bytes others = bytes.minus(by_name[of]);
    if (!others.is_zero() && !books_.freed(of.first, of.second, others))
      fail("P1: freed was what session " + std::to_string(of.first.value) + " has not given back");
  }
  std::ranges::copy(events, std::back_inserter(history_));
  while (history_.size() > kHistory) history_.pop_front();
  std::map<std::int64_t, bool> honest;
  std::vector<bool> stolen(jobs.size());
  for (const auto& [pid, process] : processes_) {
    honest[pid] = process->traits.honest();
    for (DeviceIndex device = 0; device < stolen.size(); ++device)
      if (!process->stolen[device].is_zero()) stolen[device] = true;
  }
  const auto views = broker.devices();
  for (DeviceIndex device = 0; device < stolen.size(); ++device)
    // An elastic pool creates what is needed of what the driver has.
    if (views[device].missing > views[device].contexts + (elastic_ ? driver.room(device) : Bytes{}))
      stolen[device] = true;
  fail(promises_.check(happened_,
                       {sessions_, open_, jobs_used_, honest, stolen, keepers(), entangled(), now}));
  for (const auto& [session, signal] : std::exchange(happened_.signals, {})) {
    if (Process* process = process_of(session)) deliver(*process, signal);
  }
  for (const auto& [pid, signal] : std::exchange(happened_.foreign_signals, {})) {
    if (Process* process = find(pid)) deliver(*process, signal);
  }
  happened_ = {};
  const auto jobs = broker.jobs_by_number();
  std::erase_if(jobs_begun_, [&](const auto& one) { return !jobs.contains(one.first); });
}

void World::note_granted(const Event& event) {
  happened_.grants.emplace(event.session, *event.device);
  const auto open = open_.find(event.request);
  const bool reserves = open != open_.end() && open->second.reserves;
  const CommandJobId job = reserves ? open->second.job : event.job;
  if (job) jobs_used_[{job, *event.device}] = now;
  if (open != open_.end()) open->second.granted = true;
  const bool is_context = open != open_.end() && open->second.is_context;
  if (!reserves && !is_context) books_.granted(event.request, event.session, *event.device, event.bytes);
}

void World::start_job(DeviceIndex device) {
  after(up_to(kJobTakes), [this, device] {
    const JobResult result = run_next_job(device);
    if (!jobs[device].empty()) start_job(device);
    broker.job_done(result, now);
    absorb();
  });
}

void World::take(SendOffer& effect) {
  for (const OfferedLease& one : effect.grant.leases)
    books_.lent(one.extent.id, effect.session, one.device, one.extent.size);
  Process* process = process_of(effect.session);
  if (process == nullptr) {  // it has just ended, and the broker learns of its sessions one by one
    for (const OfferedLease& one : effect.grant.leases) books_.unmapped(one.extent.id);
    return;
  }
  if (process->session != effect.session) return fail("an offer to nobody");
  for (const OfferedLease& one : effect.grant.leases) {
    driver.hold(one.extent.id, one.is_private);
    process->mapped[one.extent.id] = {.session = effect.session,
                                      .slice = one.slice,
                                      .lease = one.lease,
                                      .device = one.device,
                                      .size = one.extent.size,
                                      .is_private = one.is_private};
  }
  process->offers.emplace_back(effect.session, effect.grant.id);
  after(up_to(kAcceptTakes), [this, pid = process->pid] { accept_offers(pid); });
}

void World::take(AnswerGrow& effect) {
  const auto open = open_.find(effect.request);
  if (open == open_.end())
    return fail("P6: request " + std::to_string(effect.request.value) +
                " is answered, and was before or is over");
  books_.settled(effect.request);
  if (open->second.is_context) answer_context(open->second, effect.answer.has_value());
  if (effect.answer)
    granted_.insert(effect.request);
  else
    fail(promises_.check_refusal(effect.request, open->second, effect.answer.error().error.message, now));
  open_.erase(open);
}

void World::answer_context(const OpenRequest& request, bool has_room) {
  Process* const process = process_of(request.session);
  if (process == nullptr) return;
  const DeviceIndex device = request.least.front().first;
  if (!has_room) {
    --process->contexts[device].announced;
    return;
  }
  after(up_to(kContextTakes), [this, pid = process->pid, session = request.session, device] {
    Process* const one = find(pid);
    if (one == nullptr || one->session != session || one->suspended) return;
    --one->contexts[device].announced;
    make_context(*one, device);
  });
}

void World::take(RingDoorbell& effect) {
  happened_.bells.insert(effect.session);
  Process* process = process_of(effect.session);
  if (process == nullptr) return;  // it has just ended, and the broker learns of its sessions one by one
  if (process->session != effect.session) return fail("a bell for nobody");
  asked_ever_.insert(process->pid);
  const Traits& traits = process->traits;
  if (traits.says_spent) {
    after({}, [this, pid = process->pid] {
      if (Process* one = find(pid)) {
        for (DeviceIndex device = 0; device < jobs.size(); ++device) say_spent(*one, device);
      }
    });
  }
  if (traits.ignores_pressure || traits.says_spent || std::exchange(process->reacts, true)) return;
  // By the deadlines that it was told, and by those that it is told meanwhile for other devices.
  Duration time = Duration::max();
  const auto asked = broker.asked_of(effect.session);
  for (DeviceIndex device = 0; device < jobs.size(); ++device) {
    time = std::min(time, broker.device(device).reclaim.deadline);
    if (!asked[device].bytes.is_zero()) time = std::min(time, asked[device].deadline - now);
  }
  after(up_to(std::max(time - milliseconds(1), Duration{})), [this, pid = process->pid] { react(pid); });
}

// That the session is ended is judged when it is decided. The host may find something unread in its lane.
void World::take(SignalSession& effect) {
  const bool was_held = held_.erase(effect.session) != 0 && !effect.may_wait;
  if (!was_held) happened_.signals.emplace_back(effect.session, effect.signal);
  const auto known = sessions_.find(effect.session);
  const bool has_lane = known != sessions_.end() && known->second.has_lane;
  if (late_ && effect.may_wait && has_lane && (*late_)() % 4 == 0) {
    held_.insert(effect.session);
    return broker.hold_signal(effect.session, now);
  }
  if (known != sessions_.end()) signals_.emplace_back(known->second.pid, effect.signal);
}

void World::take(SignalForeignProcess& effect) {
  happened_.foreign_signals.emplace_back(effect.pid, effect.signal);
  signals_.emplace_back(effect.pid, effect.signal);
}

void World::take(ForgetSession& effect) {
  const auto facts = sessions_.find(effect.session);
  if (facts == sessions_.end()) {
    if (clients_.contains(effect.session)) fail("a session is forgotten twice");
    return;  // one without a process, whose memory came back at once
  }
  if (facts->second.has_lane) fail("a session is forgotten that has not ended");
  if (Process* process = find(facts->second.pid)) std::erase(process->sessions, effect.session);
  sessions_.erase(facts);
  promises_.forget_session(effect.session);
}

// SIGSTOP holds SIGTERM back, not SIGKILL.
void World::deliver(Process& process, Signal signal) {
  if (process.traits.cannot_be_ended || process.dying) return;
  if (signal == Signal::kTerminate) {
    if (process.traits.ignores_sigterm) return;
    if (process.suspended) {
      process.sigterm_pending = true;
      return;
    }
  }
  process.dying = true;
  after(up_to(kDeathTakes), [this, pid = process.pid] {
    if (Process* one = find(pid)) exit(*one);
  });
}

// ---- Looks ----

void World::look_regularly() {
  if (!looks_) return;
  for (DeviceIndex device = 0; device < jobs.size(); ++device) look(device, true);
  after(kLookInterval, [this] { look_regularly(); });
}

void World::start_regular_looks() {
  if (!std::exchange(looks_, true)) look_regularly();
}

void World::look(DeviceIndex device, bool regular) {
  if (broker.device(device).is_host()) return;
  broker.begin_observation(device);
  absorb();
  after(kLookTakes, [this, device, regular] { observe(device, regular); });
}

// Extents are booked on the broker, which created them.
void World::observe(DeviceIndex device, bool regular) {
  Observation seen;
  seen.device = device;
  seen.regular = regular;
  seen.broker_started = 1;
  seen.broker = broker.device(device).pool - driver.room(device);
  for (const auto& [pid, process] : processes_)
    seen.broker -= process->stolen[device] + process->contexts[device].of_pool;
  seen.used = seen.broker;
  for (const auto& [pid, process] : processes_) {
    const bool has_context = process->slices.contains(device) || mapped(*process, device) > Bytes{} ||
                             std::ranges::any_of(process->regions, [device](const auto& entry) {
                               return entry.second.device == device;
                             });
    const Bytes context = has_context ? context_ : Bytes{};
    const Bytes own =
        context + process->past[device] + process->stolen[device] + process->contexts[device].bytes;
    seen.used += own;
    if (own.is_zero() || process->traits.cannot_be_ended) continue;
    seen.processes.push_back({.pid = pid,
                              .started = static_cast<std::uint64_t>(pid),
                              .uid = process->uid,
                              .gids = {process->uid},
                              .command = "x",
                              .used = own});
    if (regular) promises_.seen(pid, device, own);
  }
  broker.observe(seen, now);
  absorb();
}

Result<void> World::apply(const Policy& policy) {
  auto applied = broker.apply(policy, now);
  for (auto& [session, facts] : sessions_) {
    facts.tenant = broker.tenant_name(session);
    facts.job = broker.job_of(session);
  }
  for (auto& [id, request] : open_) request.tenant = sessions_.at(request.session).tenant;
  absorb();
  return applied;
}

std::string World::history() const {
  std::string lines;
  for (const Event& event : history_) {
    lines += std::to_string((event.at - TimePoint(std::chrono::hours(1))) / milliseconds(1)) +
             " ms: " + std::string(name_of(event.kind)) + " tenant " + event.tenant + ", session " +
             std::to_string(event.session.value) + ", request " + std::to_string(event.request.value) +
             ", device " + (event.device ? std::to_string(*event.device) : "-") + ", " +
             to_string(event.bytes) + ", " + event.words + "\n";
  }
  return lines;
}

Bytes World::past_room(DeviceIndex device) const {
  Bytes taken;
  for (const auto& [pid, process] : processes_) taken += process->past[device];
  return (broker.device(device).total - broker.device(device).pool).minus(taken + kRoomForContexts);
}

}  // namespace gpumem::core::promises
