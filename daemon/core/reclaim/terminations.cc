#include "daemon/core/reclaim/terminations.h"

#include <algorithm>

#include "base/text/time_format.h"

namespace gpumem::core {

void Terminations::begin(const Session& session, DeviceIndex device, const Amounts& lacking,
                         const char* cause, TimePoint now) {
  const ReclaimPolicy& reclaim = state_.policy.devices[device].reclaim;
  const TimePoint kill_at = now + reclaim.grace;
  const auto found = session.asked.find(device);
  const ReclaimRequest asked = found == session.asked.end() ? ReclaimRequest{} : found->second;
  const Bytes bytes = asked.bytes;
  const Bytes told = std::max(bytes, asked.denied());
  const bool is_told = contains(session.id);
  const bool is_declared = !asked.declared.is_zero();
  const Amounts amounts = bytes.is_zero() && !is_declared ? lacking : Amounts{bytes, asked.own};
  ending_[{session.id, device}] = {
      kill_at, kill_at + reclaim.deadline, {amounts, is_declared}, figures_of({session.id, device})};
  Event& event = state_.note(Event::Kind::kTerminating, session, now);
  event.device = device;
  event.bytes = session.holding(device).leaving();
  event.deadline = kill_at;
  event.words = std::string(cause) + ", and it did not give back " +
                (told.is_zero() ? "what it was asked for" : "the " + to_string(told) + " it was asked for") +
                " within " + span_text(std::chrono::ceil<std::chrono::milliseconds>(reclaim.deadline));
  state_.session(session.id).why = event.words;
  if (!is_told) state_.outbox.emit(SignalSession{session.id, Signal::kTerminate, true});
}

bool Terminations::contains(SessionId session) const {
  const auto first = ending_.lower_bound({session, 0});
  return first != ending_.end() && first->first.first == session;
}

void Terminations::forget(SessionId session) {
  std::erase_if(ending_, [&](const auto& entry) { return entry.first.first == session; });
}

Terminations::Figures Terminations::figures_of(const Key& key) const {
  const auto& [id, device] = key;
  const Holding& holding = state_.session(id).holding(device);
  const Imports::Kept kept = state_.imports.kept(id, device);
  return {holding.freed, holding.leaving(), kept.held_back(), holding.charges.total() + kept.known};
}

// A session has to let go of as much of its own memory as was asked for, and of all memory of others, because
// nobody knows which part of that was meant. Memory that the driver does not prove free counts as kept again.
bool Terminations::has_let_go(const Termination& termination, const Figures& now) {
  const Asked& asked = termination.asked;
  const Figures& before = termination.before;
  return !asked.bytes.is_zero() && !asked.is_declared && now.leaving + asked.own <= before.leaving &&
         (before.of_others.is_zero() || now.of_others.is_zero());
}

// What an importer lets go of becomes free at its holder.
bool Terminations::has_complied(const Key& key, const Termination& termination) const {
  const Figures now = figures_of(key);
  const Bytes asked = termination.asked.bytes;
  if (!asked.is_zero() && now.freed - termination.before.freed >= asked) return true;
  return has_let_go(termination, now) && now.known + asked <= termination.before.known;
}

bool Terminations::spare_compliant() {
  std::vector<Key> spared;
  for (const auto& [key, termination] : ending_)
    if (!termination.killed && has_complied(key, termination)) spared.push_back(key);
  for (const Key& key : spared) {
    const bool was_held = ending_.extract(key).mapped().held_until.has_value();
    Session& session = state_.session(key.first);
    if (was_held && !session.told_to_end && !contains(key.first)) session.why.clear();
  }
  return !spared.empty();
}

void Terminations::hold_signal(SessionId session, TimePoint now) {
  for (auto& [key, termination] : ending_)
    if (key.first == session) termination.held_until = std::min(now + kReadingTime, termination.kill_at);
}

void Terminations::carry_out(TimePoint now) {
  for (auto& [key, termination] : ending_)
    if (const auto next = next_signal(key, termination); next && *next <= now) send(key, termination, now);
}

// Nothing: the session is given time to comply, or no signal is left.
std::optional<TimePoint> Terminations::next_signal(const Key& key, const Termination& termination) const {
  if (termination.killed) return std::nullopt;
  if (!termination.held_until) return termination.kill_at;
  if (has_let_go(termination, figures_of(key))) return std::nullopt;
  return termination.held_until;
}

// SIGTERM comes first, and a grace after it that was not used up by the driver.
void Terminations::send(const Key& key, Termination& termination, TimePoint now) {
  const SessionId id = key.first;
  if (termination.held_until) {
    for (auto& [other, one] : ending_) {  // all devices that it is late for
      if (other.first != id || !std::exchange(one.held_until, std::nullopt)) continue;
      const ReclaimPolicy& reclaim = state_.policy.devices[other.second].reclaim;
      if (one.kill_at < now) one.kill_at = now + reclaim.grace;
      one.given_up_at = one.kill_at + reclaim.deadline;
    }
    state_.outbox.emit(SignalSession{id, Signal::kTerminate});
    return;
  }
  // With the process, its memory of all devices comes back.
  for (DeviceIndex device = 0; device < state_.policy.devices.size(); ++device)
    ending_.try_emplace({id, device}, termination).first->second.killed = true;
  state_.note(Event::Kind::kKilling, state_.session(id), now).words = "it did not end on SIGTERM";
  state_.outbox.emit(SignalSession{id, Signal::kKill});
}

template <class Amount>
Bytes Terminations::sum(DeviceIndex device, TenantId of, TimePoint now, Amount amount) const {
  Bytes sum;
  for (const auto& [key, termination] : ending_) {
    const Session& session = state_.session(key.first);
    if (key.second == device && termination.given_up_at > now && state_.tenants.is_below(session.leaf, of))
      sum += amount(session);
  }
  return sum;
}

Bytes Terminations::coming(DeviceIndex device, TenantId of, TimePoint now) const {
  return sum(device, of, now, [&](const Session& session) { return brings(session, device); });
}

// Without memory that a process of another tenant keeps, if that process is not being terminated.
Bytes Terminations::brings(const Session& session, DeviceIndex device) const {
  Bytes kept_most;
  for (const auto& [id, kept] : state_.imports.keepers(session.id, device)) {
    if (state_.session(id).tenant != session.tenant && !contains(id))
      kept_most = std::max(kept_most, kept.used);
  }
  return session.holding(device).leaving().minus(kept_most);
}

Bytes Terminations::coming_with_outside(DeviceIndex device, TenantId of, TimePoint now) const {
  return sum(device, of, now, [&](const Session& session) {
    const auto outside = session.outside.find(device);
    Bytes besides;
    if (outside != session.outside.end()) {
      if (state_.tenants.is_below(state_.charged_for_contexts(session, device), of))
        besides += outside->second.of_contexts();
      if (state_.tenants.is_below(state_.charged_besides(session, device), of))
        besides += outside->second.besides_contexts();
    }
    return brings(session, device) + besides;
  });
}

std::optional<TimePoint> Terminations::latest_kill(DeviceIndex device, TimePoint now) const {
  std::optional<TimePoint> latest;
  for (const auto& [key, termination] : ending_) {
    const bool counts = key.second == device && termination.given_up_at > now &&
                        !state_.session(key.first).holding(device).leaving().is_zero();
    if (counts) latest = std::max(latest.value_or(termination.kill_at), termination.kill_at);
  }
  return latest;
}

std::optional<TimePoint> Terminations::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [key, termination] : ending_) {
    if (const auto one = next_signal(key, termination)) next = std::min(next.value_or(*one), *one);
  }
  return next;
}

std::optional<TimePoint> Terminations::next_given_up(TimePoint now) const {
  std::optional<TimePoint> next;
  for (const auto& [key, termination] : ending_) {
    if (termination.given_up_at > now)
      next = std::min(next.value_or(termination.given_up_at), termination.given_up_at);
  }
  return next;
}

}  // namespace gpumem::core
