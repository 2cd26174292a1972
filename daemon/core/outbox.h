#pragma once
#include <utility>
#include <vector>

#include "daemon/core/effects.h"
#include "daemon/core/events.h"
#include "daemon/core/records.h"

namespace gpumem::core {

/// What the core has decided and not yet handed over: effects for the host, events for those who watch, and
/// the sessions whose figures have changed.
class Outbox {
 public:
  template <class E>
  void emit(E effect) {
    effects_.emplace_back(std::move(effect));
  }
  /// A new event, to be filled in by the caller at once.
  Event& note(Event::Kind kind, TimePoint now);
  /// The same of a session.
  Event& note(Event::Kind kind, const Session& session, TimePoint now);
  /// Adds `bytes` of a device to the session's latest event, if that is of the same kind and moment: of
  /// extents that fare alike one event tells.
  void note_bytes(Event::Kind kind, const Session& session, DeviceIndex device, Bytes bytes, TimePoint now);
  void touch(SessionId session);

  /// They come in place of what `into` has, whose room is used for those that follow.
  void take_effects(std::vector<Effect>& into) {
    into.clear();
    into.swap(effects_);
  }
  std::vector<Event> take_events() { return std::exchange(events_, {}); }
  std::vector<SessionId> take_touched() { return std::exchange(touched_, {}); }

 private:
  std::vector<Effect> effects_;
  std::vector<Event> events_;
  std::vector<SessionId> touched_;
};

}  // namespace gpumem::core
