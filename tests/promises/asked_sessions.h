#pragma once
#include <map>
#include <optional>
#include <set>

#include "tests/promises/watched_broker.h"

namespace gpumem::core::promises {

/// What sessions were told to give back, and until when.
class AskedSessions {
 public:
  struct Told {
    AskedFor asked;
    TimePoint since;
    TimePoint due;       ///< the deadline that it was told, of what it has not done
    bool spent = false;  ///< it says that it has nothing to give
    bool owes = false;   ///< of an earlier request: what it was told then stands
  };

  /// `kept`  the session's process has memory of the device mapped that it gave back, as it said.
  /// Answers false if more is asked for than before and no bell was rung.
  bool update(SessionId session, DeviceIndex device, AskedFor asked, bool rung, bool kept, TimePoint now);
  /// The session says that it has nothing to give: what it was told stands all the same.
  void said_spent(SessionId session, DeviceIndex device);
  void forget(SessionId session);
  /// What the session was told last and has not done.
  std::optional<Told> told(SessionId session, DeviceIndex device) const;

 private:
  std::map<std::pair<SessionId, DeviceIndex>, Told> told_;
};

}  // namespace gpumem::core::promises
