#include "daemon/core/reclaim/terminations.h"

#include <algorithm>

#include "base/time_format.h"

namespace gpumem::core {

void Terminations::begin(const Session& session, DeviceIndex device, const char* cause, TimePoint now) {
  const ReclaimPolicy& reclaim = state_.policy.devices[device].reclaim;
  const TimePoint kill_at = now + reclaim.grace;
  const auto asked = session.asked.find(device);
  const Bytes bytes = asked == session.asked.end() ? Bytes{} : asked->second.bytes;
  ending_[session.id] = {device, kill_at, kill_at + reclaim.deadline, bytes, session.holding(device).freed};
  Event& event = state_.note(Event::Kind::kTerminating, session, now);
  event.device = device;
  event.bytes = session.holding(device).leaving();
  event.deadline = kill_at;
  event.words =
      std::string(cause) + ", and it did not give back " +
      (bytes.is_zero() ? "what it was asked for" : "the " + to_string(bytes) + " it was asked for") +
      " within " + span_text(std::chrono::ceil<std::chrono::milliseconds>(reclaim.deadline));
  state_.session(session.id).why = event.words;
  state_.outbox.emit(SignalSession{session.id, Signal::kTerminate});
}

bool Terminations::has_complied(const Session& session, const Termination& termination) const {
  const Bytes freed = session.holding(termination.device).freed - termination.freed_before;
  return !termination.asked.is_zero() && freed >= termination.asked;
}

void Terminations::spare_compliant() {
  std::erase_if(ending_, [this](const auto& entry) {
    return !entry.second.killed && has_complied(state_.session(entry.first), entry.second);
  });
}

void Terminations::carry_out(TimePoint now) {
  spare_compliant();
  for (auto& [id, termination] : ending_) {
    if (termination.killed || termination.kill_at > now) continue;
    termination.killed = true;
    state_.note(Event::Kind::kKilling, state_.session(id), now).words = "it did not end on SIGTERM";
    state_.outbox.emit(SignalSession{id, Signal::kKill});
  }
}

template <class Amount>
Bytes Terminations::sum(TenantId of, TimePoint now, Amount amount) const {
  Bytes sum;
  for (const auto& [id, termination] : ending_) {
    const Session& session = state_.session(id);
    if (termination.given_up_at > now && state_.tenants.is_below(session.leaf, of)) sum += amount(session);
  }
  return sum;
}

Bytes Terminations::coming(DeviceIndex device, TenantId of, TimePoint now) const {
  return sum(of, now, [&](const Session& session) { return brings(session, device); });
}

// Without memory that a process of another tenant keeps, if that process is not being terminated.
Bytes Terminations::brings(const Session& session, DeviceIndex device) const {
  Bytes kept_most;
  for (const auto& [id, kept] : state_.imports.keepers(session.id, device)) {
    if (state_.session(id).tenant != session.tenant && !ending_.contains(id))
      kept_most = std::max(kept_most, kept.used);
  }
  return session.holding(device).leaving().minus(kept_most);
}

Bytes Terminations::coming_with_outside(DeviceIndex device, TenantId of, TimePoint now) const {
  return sum(of, now, [&](const Session& session) {
    const auto outside = session.outside.find(device);
    const bool is_charged = state_.tenants.is_below(state_.tenants.leaf_of(session.tenant), of);
    const Bytes besides = is_charged && outside != session.outside.end() ? outside->second.total() : Bytes{};
    return brings(session, device) + besides;
  });
}

std::optional<TimePoint> Terminations::latest_kill(DeviceIndex device, TimePoint now) const {
  std::optional<TimePoint> latest;
  for (const auto& [id, termination] : ending_) {
    const bool counts =
        termination.given_up_at > now && !state_.session(id).holding(device).leaving().is_zero();
    if (counts) latest = std::max(latest.value_or(termination.kill_at), termination.kill_at);
  }
  return latest;
}

std::optional<TimePoint> Terminations::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, termination] : ending_) {
    if (!termination.killed) next = std::min(next.value_or(termination.kill_at), termination.kill_at);
  }
  return next;
}

std::optional<TimePoint> Terminations::next_given_up(TimePoint now) const {
  std::optional<TimePoint> next;
  for (const auto& [id, termination] : ending_) {
    if (termination.given_up_at > now)
      next = std::min(next.value_or(termination.given_up_at), termination.given_up_at);
  }
  return next;
}

}  // namespace gpumem::core
