#pragma once
#include <map>
#include <optional>

#include "daemon/core/state.h"

namespace gpumem::core {

/// The sessions whose processes are being ended because they did not give back what they were asked for:
/// SIGTERM, the device's grace, SIGKILL. What such a process holds counts as coming, until it has outlived
/// that by another deadline.
class Terminations {
 public:
  explicit Terminations(State& state) : state_(state) {}

  /// Ends the process of `session`, for what it holds of `device`. It can be ended and is not yet being.
  void begin(const Session& session, DeviceIndex device, TimePoint now);
  /// Kills those whose grace is over.
  void carry_out(TimePoint now);
  void forget(SessionId session) { ending_.erase(session); }

  bool contains(SessionId session) const { return ending_.contains(session); }
  /// What the processes below `of` (none: all) that are being ended will bring back of the pool.
  Bytes coming(DeviceIndex device, TenantId of, TimePoint now) const;
  /// The same with what they are charged outside the pool.
  Bytes coming_with_outside(DeviceIndex device, TenantId of, TimePoint now) const;
  /// The latest SIGKILL that coming() counts on for the device.
  std::optional<TimePoint> latest_kill(DeviceIndex device, TimePoint now) const;
  /// When the next process is killed.
  std::optional<TimePoint> next_deadline() const;
  /// When the next process is not counted on any more.
  std::optional<TimePoint> next_given_up(TimePoint now) const;

 private:
  struct Termination {
    TimePoint kill_at;
    TimePoint given_up_at;  ///< what it holds is not counted on any more
    bool killed = false;
  };
  Bytes brings(const Session& session, DeviceIndex device) const;
  template <class Amount>
  Bytes sum(TenantId of, TimePoint now, Amount amount) const;

  State& state_;
  std::map<SessionId, Termination> ending_;
};

}  // namespace gpumem::core
