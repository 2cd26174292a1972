#pragma once
#include <map>
#include <optional>
#include <utility>

#include "daemon/core/sessions/state.h"

namespace gpumem::core {

/// The sessions whose processes are being terminated because they did not comply with a reclaim request:
/// SIGTERM, the device's grace, SIGKILL. The memory of such a process counts as coming, until the process has
/// outlived the SIGKILL by another deadline.
class Terminations {
 public:
  explicit Terminations(State& state) : state_(state) {}

  struct Amounts {
    Bytes bytes;
    Bytes own;  ///< the part of `bytes` that is the session's own memory
  };
  /// Terminates the process of `session`, for its memory of `device`. The process can be terminated, and is
  /// not being terminated for that device yet. `lacking`  of it, if the session is asked for nothing at
  /// present, since it has said that it has nothing to give. `cause`  of the reclaim request, in words.
  void begin(const Session& session, DeviceIndex device, const Amounts& lacking, const char* cause,
             TimePoint now);
  /// Calls off the terminations of sessions that have complied after all: as much as they were asked for is
  /// free. They get no other signal for that device. Returns whether there was one.
  bool spare_compliant();
  /// The SIGTERM of begin() was not sent yet, since requests of the session are unread. It is sent a moment
  /// later, unless the session has let go of what it was asked for by then. SIGKILL comes no later for it.
  void hold_signal(SessionId session, TimePoint now);
  static constexpr Duration kReadingTime = std::chrono::milliseconds(100);
  /// Sends the signals that are due. spare_compliant() comes first.
  void carry_out(TimePoint now);
  void forget(SessionId session);

  /// Whether it is for its memory of the device; of any device.
  bool contains(SessionId session, DeviceIndex device) const { return ending_.contains({session, device}); }
  bool contains(SessionId session) const;
  /// The bytes of the pool that will come back from the processes being terminated, of tenants at or below
  /// `of` (none: of all).
  Bytes coming(DeviceIndex device, TenantId of, TimePoint now) const;
  /// As coming(), with the charges outside the pool.
  Bytes coming_with_outside(DeviceIndex device, TenantId of, TimePoint now) const;
  /// The latest SIGKILL that coming() counts on for the device.
  std::optional<TimePoint> latest_kill(DeviceIndex device, TimePoint now) const;
  /// The time of the next signal.
  std::optional<TimePoint> next_deadline() const;
  /// The time when coming() stops counting on the next process.
  std::optional<TimePoint> next_given_up(TimePoint now) const;

 private:
  struct Asked : Amounts {
    bool is_declared = false;
  };
  // Of a session and a device.
  struct Figures {
    Bytes freed;      ///< Holding::freed
    Bytes leaving;    ///< Holding::leaving()
    Bytes of_others;  ///< Imports::Kept::held_back()
    Bytes known;      ///< memory that it may have, its own and others', which is not free
  };
  struct Termination {
    TimePoint kill_at;
    TimePoint given_up_at;  ///< from then on coming() does not count on its memory
    Asked asked;
    Figures before;
    std::optional<TimePoint> held_until{};  ///< SIGTERM was not sent yet
    bool killed = false;
  };
  using Key = std::pair<SessionId, DeviceIndex>;
  Figures figures_of(const Key& key) const;
  static bool has_let_go(const Termination& termination, const Figures& now);
  bool has_complied(const Key& key, const Termination& termination) const;
  std::optional<TimePoint> next_signal(const Key& key, const Termination& termination) const;
  void send(const Key& key, Termination& termination, TimePoint now);
  Bytes brings(const Session& session, DeviceIndex device) const;
  template <class Amount>
  Bytes sum(DeviceIndex device, TenantId of, TimePoint now, Amount amount) const;

  State& state_;
  std::map<Key, Termination> ending_;  ///< each device that a session is late for has a time of its own
};

}  // namespace gpumem::core
