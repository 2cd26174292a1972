#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/sessions/views.h"
#include "daemon/core/words/observation.h"
#include "daemon/core/words/types.h"

namespace gpumem::core {

/// Foreign memory is reported again only when it has grown by this much.
inline constexpr Bytes kWorthAnEvent = mebibytes(64);

/// A figure of which events tell: when it appears, and when it has grown much since the last one.
struct Announced {
  Bytes last;  ///< the figure of the last event, or what it has fallen to since
  /// Whether `now` is worth an event, which then has been told.
  bool tells(Bytes now);
};

/// Memory that a process holds past the broker on one device.
struct PastBroker {
  Bytes bytes;                       ///< as last seen
  std::optional<TimePoint> since{};  ///< the first of the regular looks, without one in between that saw none
  bool lasting = false;              ///< for as long as the policy asks, at every look
  std::optional<TimePoint> kill_at{};  ///< its process was told to end, and is killed then
  Announced announced;

  /// Takes note of what a look saw; only regular ones count against the process. `confirm`: how long it must
  /// last. Answers whether it is worth an event.
  bool see(Bytes seen, bool regular, TimePoint now, Duration confirm);
  /// Notes that the process holds nothing.
  void clear();
};

/// What a session is charged on a device besides its leases.
struct OutsideCharge {
  Bytes declared;
  Bytes excused;                  ///< of `declared`: what limits had room for when it was declared, or later
  Bytes overhead;                 ///< its context: an estimate, until it has been measured
  Bytes unforeseen;               ///< of `overhead`: beyond the estimate, or without room in the limits
  Bytes past;                     ///< held past the broker, beyond what is allowed
  Bytes room;                     ///< for contexts that are not measured yet
  bool begun = false;             ///< the session has had a slice on this device
  bool measured = false;          ///< `overhead` is what the driver said
  std::size_t contexts_made = 0;  ///< after an announcement
  Bytes context_needs;            ///< at least, since one that was expected to take less has failed
  std::size_t contexts_failed = 0;  ///< in a row, for want of memory
  PastBroker watch;

  Bytes of_contexts() const { return overhead + room; }
  /// Of of_contexts(), what nobody is asked to give back.
  Bytes unasked_of_contexts() const { return unforeseen + room; }
  Bytes besides_contexts() const { return declared + past; }
  Bytes total() const { return of_contexts() + besides_contexts(); }
};

/// A process that is no session's and holds memory of a device.
struct ForeignProcess {
  std::uint64_t started = 0;
  TenantId tenant;  ///< the charged tenant, if any
  Bytes charged;
  PastBroker watch;
};

/// A process that was told to end, and is killed if it does not.
struct Ending {
  TimePoint at;
  DeviceIndex device = 0;
  std::int64_t pid = 0;
  std::uint64_t started = 0;
  SessionId session;  ///< none: a foreign process
};

/// One device between two observations.
struct Reconciled {
  Reconciliation view;
  std::map<std::int64_t, ForeignProcess> foreign_processes;  ///< by pid
  std::vector<std::int64_t>
      clients_before;  ///< pids that had a session when the latest observation began, in order
  Bytes unexplained_before;
  Bytes drivers_own;        ///< used, and booked on nobody, as far as memory on its way lets tell
  Bytes jobs_ended_before;  ///< Store::ended() when the latest observation began
  Announced unexplained;
};

/// The driver's figure of one process, and the memory that is lent to it.
struct Booked {
  Bytes used;    ///< zero: the driver does not tell
  Bytes leases;  ///< the most that it can have had mapped at that moment
};

/// The most of a device that a driver uses and books on no process.
inline constexpr Bytes kDriversOwn = mebibytes(512);

/// Memory that each process holds and that is not lent to it; nullopt where that cannot be told.
///
/// Drivers differ in whether they book a lease on the process that has mapped it, besides its creator. If
/// they do, the processes' figures add up to more than the device uses. So if all of them, and what is booked
/// on the broker, are what the device uses, or little less, every figure is the process's own. Else leases
/// may be in it: then only what lies beyond all leases of the process is sure to be its own. `broker`  booked
/// on the broker, or if the driver does not tell, what it has created.
std::vector<std::optional<Bytes>> own_memory(const std::vector<Booked>& processes, Bytes broker, Bytes used);

}  // namespace gpumem::core
