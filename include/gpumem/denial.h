#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem {

/// Why the broker refused a request, or why waiting did not help. The figures are those at the time of the
/// answer.
struct Denial {
  enum class Reason {
    kUnknown,      ///< the broker is newer than this library; the message still explains it
    kSliceLimit,   ///< the slice would pass its own limit
    kTenantLimit,  ///< the tenant, or one that it belongs to, would pass its limit on this device
    kPoolSize,     ///< more than the device's pool, less what is promised to others
    kNoMemory,     ///< the memory is held by others or kept for guarantees
    kDebt,         ///< the tenant, or one that it belongs to, uses more than its limit
    kTurn,         ///< there is memory, but other requests are ahead in the queue
  };
  /// A process; or a whole tenant, if `session` is 0.
  struct Holder {
    std::uint64_t session = 0;
    std::int64_t pid = 0;
    std::string command;
    Bytes charged;
    std::string tenant;
  };
  /// The earliest time at which the request could succeed.
  struct Soonest {
    /// Nothing if it depends on what others do voluntarily.
    std::optional<std::chrono::milliseconds> within;
    std::string why;
  };

  Reason reason = Reason::kUnknown;
  std::string device;
  std::string tenant;
  Bytes asked;        ///< what was requested
  Bytes asked_least;  ///< what would have been enough
  Bytes tenant_limit;
  Bytes tenant_guarantee;
  Bytes tenant_charged;
  Bytes pool;
  Bytes free;             ///< in the pool and charged to nobody
  Bytes kept_for_others;  ///< the part of `free` that other tenants' guarantees need
  Bytes charged_to_others;
  std::uint64_t waiters_ahead = 0;
  std::chrono::milliseconds waited{0};
  std::chrono::milliseconds wait_limit{0};
  std::string limiting_tenant;  ///< the tenant whose limit applies, for kTenantLimit and kDebt
  Bytes limiting_limit;
  Bytes limiting_charged;
  Bytes returning;   ///< being returned: will be free soon
  Bytes asked_back;  ///< requested back from borrowers, for requests such as this one
  Soonest soonest;
  std::vector<Holder> holders;        ///< of the caller's own tenant, largest first
  std::vector<Holder> other_tenants;  ///< largest first; told to administrators only
};

/// An Error with the broker's denial, if there is one. `message` alone is complete for people.
struct GrowError : Error {
  std::optional<Denial> denial;

  GrowError(Error error) : Error(std::move(error)) {}  // NOLINT(*-explicit-*)
  GrowError(Error error, Denial why) : Error(std::move(error)), denial(std::move(why)) {}
};

}  // namespace gpumem
