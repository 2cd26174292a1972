#include <algorithm>

#include "tests/promises/world.h"

// What processes do, of their own accord or because they were asked.

namespace gpumem::core::promises {

Process* World::find(std::int64_t pid) {
  const auto found = processes_.find(pid);
  return found == processes_.end() ? nullptr : found->second.get();
}

Process* World::process_of(SessionId session) {
  const auto facts = sessions_.find(session);
  return facts == sessions_.end() ? nullptr : find(facts->second.pid);
}

Bytes World::mapped(const Process& process, DeviceIndex device) const {
  Bytes sum;
  for (const auto& [id, mapping] : process.mapped) {
    if (mapping.device == device) sum += mapping.size;
  }
  return sum;
}

Bytes World::asked(const Process& process, DeviceIndex device) const {
  return process.session ? broker.asked_of(process.session)[device].bytes : Bytes{};
}

Process& World::spawn(std::uint32_t uid, Traits traits) {
  auto process = std::make_unique<Process>();
  process->pid = ++last_pid_;
  process->uid = uid;
  process->traits = traits;
  process->past.resize(jobs.size());
  process->stolen.resize(jobs.size());
  process->contexts.resize(jobs.size());
  if (!traits.honest()) {
    misbehaving_.insert(uid);
    for (auto& [id, request] : open_) {
      if (const Process* owner = process_of(request.session); owner != nullptr && owner->uid == uid)
        request.honest = false;
    }
  }
  return *processes_.emplace(process->pid, std::move(process)).first->second;
}

bool World::connect(Process& process, CommandJobId job) {
  Peer peer{.pid = process.pid,
            .uid = process.uid,
            .gids = {process.uid},
            .command = "x",
            .started = static_cast<std::uint64_t>(process.pid)};
  if (process.traits.cannot_be_ended) {
    peer.pid = 0;
    peer.started = 0;
    peer.can_be_ended = false;
  }
  const auto session = broker.open_session(peer, "", now, job);
  if (session) {
    process.session = *session;
    process.joined = broker.job_of(*session);
    const auto known = jobs_begun_.find(job);
    const bool may_join =
        known != jobs_begun_.end() && known->second.uid == process.uid &&
        (peer.can_be_ended || !known->second.can_be_ended || !broker.jobs_by_number().at(job).owner);
    if (static_cast<bool>(process.joined) != may_join)
      fail("a session is not in the job that it may be in, or in another");
    process.sessions.push_back(*session);
    clients_.insert(*session);
    SessionFacts& facts = sessions_[*session];
    facts = {process.pid, broker.tenant_name(*session), process.traits.honest()};
    facts.job = process.joined;
    for (DeviceIndex device = 0; device < jobs.size(); ++device)
      if (!process.past[device].is_zero()) facts.outside.insert(device);
  }
  absorb();
  return session.has_value();
}

std::optional<SliceId> World::slice(Process& process, DeviceIndex device) {
  if (!process.session) return std::nullopt;
  if (const auto known = process.slices.find(device); known != process.slices.end()) return known->second;
  const bool is_private = driver.host == device && random_() % 2 == 0;
  const auto slice = broker.open_slice(process.session, {broker.device(device).uuid, {}, "", is_private});
  if (slice) process.slices[device] = slice->id;
  absorb();
  return slice ? std::optional(slice->id) : std::nullopt;
}

void World::close_slice(Process& process, DeviceIndex device) {
  const auto known = process.slices.find(device);
  if (known == process.slices.end()) return;
  if (broker.close_slice(process.session, {known->second}, now)) process.slices.erase(known);
  absorb();
}

bool World::begin_job(Process& process, Bytes limit) {
  if (!process.session) return false;
  const auto begun = broker.begin_job(process.session, {"", limit}, now);
  if (begun) {
    process.begun = begun->job;
    jobs_begun_[begun->job] = {process.uid, !process.traits.cannot_be_ended};
  }
  absorb();
  return begun.has_value();
}

RequestId World::reserve(Process& process, DeviceIndex device, Bytes bytes, Duration wait) {
  const RequestId id = request_ids_.next();
  OpenRequest& request = open_[id];
  request.session = process.session;
  request.tenant = sessions_.at(process.session).tenant;
  request.job = process.begun;
  request.reserves = true;
  request.least = {{device, bytes}};
  request.asked = now;
  request.deadline = now + wait;
  broker.reserve_for_job(id, process.session, {broker.device(device).uuid, bytes, wait}, now);
  absorb();
  return id;
}

// A growth that its job has reserved. Others of its session that wait might leave its slice no room.
bool World::is_covered(const Process& process, const std::vector<Part>& parts) const {
  if (parts.size() != 1) return false;
  const auto [device, least, wanted] = parts.front();
  const auto is_its = [&](const auto& entry) { return entry.second.session == process.session; };
  return least <= reserved(process, device) && broker.devices()[device].missing.is_zero() &&
         std::ranges::none_of(open_, is_its);
}

Bytes World::reserved(const Process& process, DeviceIndex device) const {
  const auto jobs = broker.jobs_by_number();
  const auto job = jobs.find(process.joined);
  return job == jobs.end() ? Bytes{} : job->second.devices[device].reserved;
}

RequestId World::grow(Process& process, const std::vector<Part>& parts, Duration wait) {
  std::vector<GrowthPart> asked;
  OpenRequest request;
  for (const Part& part : parts) {
    const auto of = slice(process, part.device);
    if (!of) return {};
    asked.push_back({*of, part.wanted, part.least});
    request.least.emplace_back(part.device, part.least);
  }
  const RequestId id = request_ids_.next();
  request.session = process.session;
  request.tenant = sessions_.at(process.session).tenant;
  request.job = process.joined;
  request.honest = !misbehaving_.contains(process.uid);
  request.asked = now;
  request.deadline = now + wait;
  const bool covered = is_covered(process, parts);
  open_[id] = std::move(request);
  const std::int64_t pid = process.pid;
  broker.grow(id, process.session, {asked, wait}, now);
  absorb();
  const auto open = open_.find(id);
  const bool granted = is_granted(id) || (open != open_.end() && open->second.granted);
  covered_ += covered ? 1 : 0;
  if (covered && !granted)
    fail("P10: process " + std::to_string(pid) + " waits for what its job has reserved");
  return id;
}

void World::cancel(RequestId request) {
  if (open_.erase(request) == 0) return;
  broker.cancel(request, now);
  books_.settled(request);
  absorb();
}

// ---- Giving back ----

// The smallest lease that suffices, else the largest.
Bytes World::give_back_one(Process& process, DeviceIndex device, Bytes amount) {
  const auto rank = [&](Bytes size) {
    return size >= amount ? std::pair(0, size.count) : std::pair(1, ~size.count);
  };
  auto best = process.mapped.end();
  for (auto it = process.mapped.begin(); it != process.mapped.end(); ++it) {
    const Mapping& one = it->second;
    if (one.device != device || one.returned || one.session != process.session) continue;
    if (best == process.mapped.end() || rank(one.size) < rank(best->second.size)) best = it;
  }
  if (best == process.mapped.end()) return {};
  const ExtentId extent = best->first;
  const Mapping given = best->second;
  books_.given_back(extent);
  if (process.traits.keeps_returned) {
    best->second.returned = true;
    if (given.is_private) make_void(best->first, best->second);
  } else {
    process.mapped.erase(best);
    unmap(extent, given);
  }
  const std::int64_t pid = process.pid;
  if (!broker.give_back(given.session, {given.slice, std::vector{given.lease}}, now))
    fail("process " + std::to_string(pid) + " may not give back what it has");
  absorb();
  return given.size;
}

void World::give_back(Process& process, DeviceIndex device, Bytes bytes) {
  while (!bytes.is_zero() && fault_.empty()) {
    const Bytes given = give_back_one(process, device, bytes);
    if (given.is_zero()) return;
    bytes = bytes.minus(given);
  }
}

void World::react(std::int64_t pid) {
  Process* process = find(pid);
  if (process == nullptr || process->suspended) return;
  process->reacts = false;
  for (DeviceIndex device = 0; device < jobs.size(); ++device) {
    for (Bytes bytes = asked(*process, device); !bytes.is_zero(); bytes = asked(*process, device)) {
      if (unmap_one_region(*process, device)) continue;
      if (!give_back_one(*process, device, bytes).is_zero()) {
        if (!fault_.empty()) return;
        continue;
      }
      if (driver.host != device || process->pinned.is_zero()) break;
      pin(*process, process->pinned.minus(bytes), false);
    }
  }
}

void World::accept_offers(std::int64_t pid) {
  Process* process = find(pid);
  if (process == nullptr || process->suspended) return;
  for (const auto& [session, grant] : std::exchange(process->offers, {})) {
    if (session == process->session) static_cast<void>(broker.accept(session, grant));
    absorb();
  }
  const Traits& traits = process->traits;
  // What had not arrived when the bell was rung.
  if (!traits.ignores_pressure && !traits.says_spent && !process->reacts) react(pid);
}

// ---- Memory that was not lent ----

void World::declare(Process& process, DeviceIndex device, Bytes bytes) {
  if (!process.session) return;
  sessions_.at(process.session).outside.insert(device);
  const auto declared = broker.charge(process.session, {broker.device(device).uuid, bytes}, now);
  if (declared && driver.host == device) process.pinned = bytes;
  absorb();
}

void World::pin(Process& process, Bytes bytes, bool probes) {
  if (!process.session) return;
  const std::int64_t pid = process.pid;
  const Bytes more = bytes.minus(process.pinned);
  const std::string in_vain = check_pin(process, more, false);
  const auto charged = broker.charge(process.session, {std::string(kHostStore), bytes, true, probes}, now);
  if (charged) {
    process.pinned = bytes;
    sessions_.at(process.session).outside.insert(*driver.host);
  }
  const bool was_pinned = charged.has_value();
  absorb();
  if (more.is_zero()) {
    if (!was_pinned) fail("P11: what is pinned no more is refused");
    return;
  }
  ++(was_pinned ? pins_ : refused_pins_);
  if (!was_pinned) return fail(in_vain);
  if (const Process* one = find(pid); one != nullptr && one->session) fail(check_pin(*one, {}, true));
}

// Granted: it is within the limits of tenant and job. Refused: it is not, or a group's limit is in the way.
std::string World::check_pin(const Process& process, Bytes more, bool is_granted) const {
  const DeviceIndex device = *driver.host;
  const std::string tenant = broker.tenant_name(process.session);
  const Account account = broker.accounts().at({tenant, device});
  const auto jobs = broker.jobs_by_number();
  const auto job = jobs.find(process.joined);
  const bool fits_job =
      job == jobs.end() || job->second.devices[device].charged + more <= job->second.devices[device].limit;
  const bool is_within = fits_job && account.used() + more <= account.quota.limit;
  const bool is_right = is_granted ? is_within : !is_within || !broker.parents().at(tenant).empty();
  return is_right ? ""
                  : "P11: pid " + std::to_string(process.pid) + (is_granted ? " pins" : " may not pin") +
                        " host memory, against the limits of " + tenant;
}

void World::say_spent(Process& process, DeviceIndex device) {
  if (!process.session) return;
  promises_.said_spent(process.session, device);
  static_cast<void>(broker.spent(process.session, {broker.device(device).uuid}, now));
  absorb();
}

void World::take_past(Process& process, DeviceIndex device, Bytes bytes) {
  if (broker.device(device).is_host()) return;  // the broker lends files of its own
  process.past[device] += std::min(bytes, past_room(device));
  for (const SessionId session : process.sessions) sessions_.at(session).outside.insert(device);
}

void World::steal(Process& process, DeviceIndex device, Bytes bytes) {
  if (broker.device(device).is_host()) return;
  process.stolen[device] += driver.steal(device, bytes);
}

void World::give_up_past(Process& process, DeviceIndex device) {
  process.past[device] = {};
  process.stolen[device] = {};
  restore(device);
}

// The driver knows all thieves as one.
void World::restore(DeviceIndex device) {
  driver.restore(device);
  for (const auto& [pid, process] : processes_)
    driver.steal(device, process->stolen[device] + process->contexts[device].of_pool);
}

// ---- Contexts ----

void World::make_contexts_explicit() {
  context_ = {};
  driver.tells_free = true;
  for (DeviceIndex device = 0; device < jobs.size(); ++device) driver.besides[device] = kRoomForContexts;
}

RequestId World::announce_context(Process& process, DeviceIndex device, Duration wait) {
  const RequestId id = request_ids_.next();
  OpenRequest& request = open_[id];
  request.session = process.session;
  request.tenant = sessions_.at(process.session).tenant;
  request.is_context = true;
  request.honest = !misbehaving_.contains(process.uid);
  request.least = {{device, kContext}};
  request.asked = now;
  request.deadline = now + wait;
  ++process.contexts[device].announced;
  broker.announce_context(id, process.session, {broker.device(device).uuid, wait}, now);
  absorb();
  return id;
}

void World::make_context(Process& process, DeviceIndex device, std::optional<ContextDone::Outcome> says) {
  Process::Contexts& own = process.contexts[device];
  const Bytes beside = std::min(driver.besides[device], kContext);
  const bool fits = kContext - beside <= driver.room(device);
  if (fits) {
    driver.besides[device] -= beside;
    driver.steal(device, kContext - beside);
    own.bytes += kContext;
    own.of_pool += kContext - beside;
    contexts_of_pool_ += beside == kContext ? 0 : 1;
  }
  const auto truth = fits ? ContextDone::Outcome::kMade : ContextDone::Outcome::kOutOfMemory;
  if (process.session)
    broker.context_done(process.session, {broker.device(device).uuid, says.value_or(truth)}, now);
  absorb();
}

// ---- Ends ----

void World::unmap(ExtentId extent, const Mapping& mapping) {
  driver.let_go(extent);
  if (!mapping.is_void) books_.unmapped(extent);
}

// The broker takes a private file from its process, whatever that keeps.
void World::make_void(ExtentId extent, Mapping& mapping) {
  mapping.is_void = true;
  books_.unmapped(extent);
}

void World::unmap_all(Process& process) {
  for (const auto& [extent, mapping] : process.mapped) unmap(extent, mapping);
  process.mapped.clear();
  for (const auto& [import, region] : process.regions) {
    for (const ExtentId extent : region.extents) {
      driver.let_go(extent);
      books_.unmapped(extent);
    }
  }
  process.regions.clear();
}

void World::lose_lane(SessionId session) {
  sessions_.at(session).has_lane = false;
  books_.close_lane(session);
  std::erase_if(open_, [&](const auto& entry) { return entry.second.session == session; });
}

void World::close_lane(Process& process, SessionEnd end, bool unmaps) {
  const SessionId session = std::exchange(process.session, {});
  if (!session) return;
  process.begun = process.joined = {};
  for (Process::Contexts& contexts : process.contexts) contexts.announced = 0;
  process.slices.clear();
  process.offers.clear();
  lose_lane(session);
  process.pinned = {};
  for (auto& [extent, mapping] : process.mapped) {
    const bool is_taken = mapping.is_private && !mapping.is_void && end == SessionEnd::kReleased;
    mapping.returned = true;
    if (is_taken) make_void(extent, mapping);
  }
  if (unmaps) unmap_all(process);
  broker.session_ended(session, end, now);
  absorb();
}

// Its mappings go with it; the host tells of every session that it had.
void World::exit(Process& process) {
  const std::int64_t pid = process.pid;
  const auto owned = std::move(processes_.extract(pid).mapped());
  unmap_all(*owned);
  for (DeviceIndex device = 0; device < jobs.size(); ++device) {
    driver.besides[device] += owned->contexts[device].bytes - owned->contexts[device].of_pool;
    restore(device);
  }
  for (const SessionId session : std::vector(owned->sessions)) {
    if (!sessions_.contains(session)) continue;
    if (session == owned->session) lose_lane(session);
    broker.exited(session, now);
    absorb();
  }
}

void World::resume(Process& process) {
  process.suspended = false;
  const std::int64_t pid = process.pid;
  if (std::exchange(process.sigterm_pending, false)) return deliver(process, Signal::kTerminate);
  accept_offers(pid);
  if (Process* one = find(pid); one != nullptr && one->reacts) react(pid);
}

}  // namespace gpumem::core::promises
