#include <algorithm>

#include "daemon/core/sessions/unmanaged.h"

// Processes that were told to end for memory past the broker, and are killed if they do not.

namespace gpumem::core {

std::optional<TimePoint> Unmanaged::next_deadline() const {
  const auto first = std::ranges::min_element(endings_, {}, &Ending::at);
  return first == endings_.end() ? std::nullopt : std::optional(first->at);
}

// Nothing, if it is gone.
PastBroker* Unmanaged::watch_of(const Ending& ending) {
  if (ending.session) {
    Session* session = state_.find(ending.session);
    if (session == nullptr) return nullptr;
    const auto outside = session->outside.find(ending.device);
    return outside == session->outside.end() ? nullptr : &outside->second.watch;
  }
  auto& foreign_processes = devices_[ending.device].foreign_processes;
  const auto found = foreign_processes.find(ending.pid);
  return found == foreign_processes.end() || found->second.started != ending.started ? nullptr
                                                                                     : &found->second.watch;
}

void Unmanaged::tick(TimePoint now) {
  const auto later =
      std::partition(endings_.begin(), endings_.end(), [&](const Ending& one) { return one.at <= now; });
  for (auto ending = endings_.begin(); ending != later; ++ending) {
    PastBroker* watch = watch_of(*ending);
    // A process is not killed for memory that it has given back meanwhile.
    if (watch == nullptr || watch->kill_at != ending->at) continue;
    if (state_.policy.past_broker.end)
      kill(*ending, watch->bytes, now);
    else
      watch->kill_at.reset();  // so that the process is told again under another policy
  }
  endings_.erase(endings_.begin(), later);
}

void Unmanaged::kill(const Ending& ending, Bytes bytes, TimePoint now) {
  Event& event = state_.outbox.note(Event::Kind::kKilling, now);
  event.session = ending.session;
  event.device = ending.device;
  event.bytes = bytes;
  event.pid = ending.pid;
  event.words = "for memory held past the broker";
  if (ending.session) {
    event.tenant = state_.session(ending.session).tenant_name;
    state_.outbox.emit(SignalSession{ending.session, Signal::kKill});
    return;
  }
  const TenantId tenant = devices_[ending.device].foreign_processes.at(ending.pid).tenant;
  if (tenant) event.tenant = state_.tenants.name(tenant);
  state_.outbox.emit(SignalForeignProcess{ending.pid, ending.started, Signal::kKill});
}

}  // namespace gpumem::core
