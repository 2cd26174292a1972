#pragma once
#include <utility>
#include <vector>

#include "daemon/core/sessions/effects.h"
#include "daemon/core/sessions/records.h"
#include "daemon/core/words/checkpoint.h"
#include "daemon/core/words/events.h"

namespace gpumem::core {

/// Decisions of the core that are not handed over yet: effects for the host, events for subscribers, sessions
/// with changed figures, and changes that the journal must store.
class Outbox {
 public:
  template <class E>
  void emit(E effect) {
    effects_.emplace_back(std::move(effect));
  }
  /// A new event, to be filled in by the caller at once.
  Event& note(Event::Kind kind, TimePoint now);
  /// Adds an event about a session.
  Event& note(Event::Kind kind, const Session& session, TimePoint now);
  /// Adds `bytes` of a device to the session's latest event, if that is of the same kind and moment: of
  /// extents that fare alike one event tells.
  void note_bytes(Event::Kind kind, const Session& session, DeviceIndex device, Bytes bytes, TimePoint now);
  void touch(SessionId session);
  /// Changes are kept from now on.
  void keep_changes() { keeps_changes_ = true; }
  void record(Checkpoint::Change change) {
    if (keeps_changes_) changes_.push_back(std::move(change));
  }

  /// Moves the effects into `into`, whose old contents are dropped and whose capacity is reused.
  void take_effects(std::vector<Effect>& into) {
    into.clear();
    into.swap(effects_);
  }
  std::vector<Effect> take_effects() { return std::exchange(effects_, {}); }
  std::vector<Event> take_events() { return std::exchange(events_, {}); }
  const std::vector<SessionId>& touched() const { return touched_; }
  /// Sessions whose own figures have changed since the last call.
  std::vector<SessionId> take_touched() { return std::exchange(touched_, {}); }
  /// As take_effects(): the steps from one checkpoint to the next.
  void take_changes(std::vector<Checkpoint::Change>& into) {
    into.clear();
    into.swap(changes_);
  }

 private:
  std::vector<Effect> effects_;
  std::vector<Event> events_;
  std::vector<SessionId> touched_;
  std::vector<Checkpoint::Change> changes_;
  bool keeps_changes_ = false;
};

}  // namespace gpumem::core
