#pragma once
#include <cstddef>
#include <string_view>

#include "daemon/core/events.h"

namespace gpumem::core {

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
