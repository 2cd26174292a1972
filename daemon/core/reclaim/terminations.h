#pragma once
#include <map>
#include <optional>

#include "daemon/core/sessions/state.h"

namespace gpumem::core {

/// The sessions whose processes are being terminated because they did not comply with a reclaim request:
/// SIGTERM, the device's grace, SIGKILL. The memory of such a process counts as coming, until the process has
/// outlived the SIGKILL by another deadline.
class Terminations {
 public:
  explicit Terminations(State& state) : state_(state) {}

  /// Terminates the process of `session`, for its memory of `device`. The process can be terminated, and is
  /// not being terminated yet. `cause`  of the reclaim request, in words.
  void begin(const Session& session, DeviceIndex device, const char* cause, TimePoint now);
  /// Calls off the terminations of sessions that have complied after all: as much as they were asked for is
  /// free. They get no other signal.
  void spare_compliant();
  /// Kills the processes whose grace is over.
  void carry_out(TimePoint now);
  void forget(SessionId session) { ending_.erase(session); }

  bool contains(SessionId session) const { return ending_.contains(session); }
  /// The bytes of the pool that will come back from the processes being terminated, of tenants at or below
  /// `of` (none: of all).
  Bytes coming(DeviceIndex device, TenantId of, TimePoint now) const;
  /// As coming(), with the charges outside the pool.
  Bytes coming_with_outside(DeviceIndex device, TenantId of, TimePoint now) const;
  /// The latest SIGKILL that coming() counts on for the device.
  std::optional<TimePoint> latest_kill(DeviceIndex device, TimePoint now) const;
  /// The time of the next SIGKILL.
  std::optional<TimePoint> next_deadline() const;
  /// The time when coming() stops counting on the next process.
  std::optional<TimePoint> next_given_up(TimePoint now) const;

 private:
  struct Termination {
    DeviceIndex device = 0;
    TimePoint kill_at;
    TimePoint given_up_at;  ///< from then on coming() does not count on its memory
    Bytes asked;            ///< of the session
    Bytes freed_before;     ///< Holding::freed
    bool killed = false;
  };
  bool has_complied(const Session& session, const Termination& termination) const;
  Bytes brings(const Session& session, DeviceIndex device) const;
  template <class Amount>
  Bytes sum(TenantId of, TimePoint now, Amount amount) const;

  State& state_;
  std::map<SessionId, Termination> ending_;
};

}  // namespace gpumem::core
