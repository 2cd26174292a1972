#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/core/words/types.h"

namespace gpumem::core {

/// A session or a job, from its begin to its end. How long it has waited, and who has ended it why, its event
/// tells.
struct Closing {
  Duration lasted{};
  std::string name;    ///< the command of a session, the label of a job
  double charged = 0;  ///< bytes times seconds
  Bytes peak;          ///< charged at one time
  std::uint64_t denied = 0;
};

/// Something that happened, for subscribers (`gpumem events`). Facts only; their viewer makes the words.
struct Event {
  enum class Kind {
    kOpened,       ///< a session began
    kResumed,      ///< a session's client has come back, after a restart of the broker
    kEnded,        ///< a session's lane is gone
    kDied,         ///< its process is gone
    kWaiting,      ///< a request waits; `bytes` asked
    kGranted,      ///< `bytes` granted, after `waited`
    kDenied,       ///< refused, at once or after `waited`
    kWithdrawn,    ///< by the client
    kPressure,     ///< a session is asked to give `bytes` back until `deadline`
    kRelieved,     ///< the session is no longer asked for memory
    kReturned,     ///< a session gave `bytes` back; not yet proved free
    kFreed,        ///< `bytes` were proved free
    kFabric,       ///< a session gave `bytes` out by fabric handles
    kQuarantined,  ///< `bytes` were given back, but the driver does not give them
    kDebt,         ///< a tenant uses `bytes` more than its limit
    kDebtPaid,
    kTerminating,  ///< a session's process gets SIGTERM
    kKilling,      ///< ... and SIGKILL
    kQuota,        ///< quotas were changed; of this tenant, if one is named
    kPastBroker,   ///< a process holds `bytes` past the broker
    kUnexplained,  ///< the device uses `bytes` that nobody is known to hold
    kPublished,    ///< a session has published a region of `bytes`
    kMapped,       ///< a session has mapped one
    kRemoved,      ///< a session has removed one
    kExpired,      ///< the time of a region is over
    kRegionLost,  ///< a region has ended: its tenant has let go of some of its memory, or this broker has not
                  ///< got it
    kInherited,   ///< a session is charged for memory that it had imported: whoever lent it has let go
    kClosed,      ///< a session, or a job, is over and charged for nothing any more; `closing` sums it up
  };

  Kind kind = Kind::kOpened;
  TimePoint at{};
  std::string tenant;  ///< empty: of no tenant
  SessionId session;
  CommandJobId job;  ///< that the session is in
  std::optional<DeviceIndex> device;
  Bytes bytes;
  RequestId request;
  Duration waited{};
  TimePoint deadline{};
  std::int64_t pid = 0;
  std::string words;  ///< beside the figures: a denial's explanation, a cause, who changed a quota
  std::optional<std::uint32_t> uid{};  ///< of the session or job: Peer::user()
  std::shared_ptr<const Closing> closing{};
};

/// The kind's name, as `gpumem events` and the metrics show it; empty: there is no such kind.
constexpr std::string_view name_of(Event::Kind kind) {
  using Kind = Event::Kind;
  switch (kind) {
    case Kind::kOpened: return "opened";
    case Kind::kResumed: return "resumed";
    case Kind::kEnded: return "ended";
    case Kind::kDied: return "died";
    case Kind::kWaiting: return "waiting";
    case Kind::kGranted: return "granted";
    case Kind::kDenied: return "denied";
    case Kind::kWithdrawn: return "withdrawn";
    case Kind::kPressure: return "pressure";
    case Kind::kRelieved: return "relieved";
    case Kind::kReturned: return "returned";
    case Kind::kFreed: return "freed";
    case Kind::kFabric: return "fabric";
    case Kind::kQuarantined: return "quarantined";
    case Kind::kDebt: return "debt";
    case Kind::kDebtPaid: return "debt-paid";
    case Kind::kTerminating: return "terminating";
    case Kind::kKilling: return "killing";
    case Kind::kQuota: return "quota";
    case Kind::kPastBroker: return "past-broker";
    case Kind::kUnexplained: return "unexplained";
    case Kind::kPublished: return "published";
    case Kind::kMapped: return "mapped";
    case Kind::kRemoved: return "removed";
    case Kind::kExpired: return "expired";
    case Kind::kRegionLost: return "region-lost";
    case Kind::kInherited: return "inherited";
    case Kind::kClosed: return "closed";
  }
  return "";
}

/// How many kinds there are: as many as have a name.
inline constexpr std::size_t kEventKinds = [] {
  std::size_t count = 0;
  while (!name_of(static_cast<Event::Kind>(count)).empty()) ++count;
  return count;
}();

}  // namespace gpumem::core
