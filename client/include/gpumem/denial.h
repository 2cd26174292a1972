#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem {

/// Why the broker refused a request, or why waiting did not help. Figures of the moment of the answer.
struct Denial {
  enum class Reason {
    kUnknown,      ///< the broker is newer than this library; the message still says it in words
    kSliceLimit,   ///< the slice would pass its own limit
    kTenantLimit,  ///< the tenant, or one that it belongs to, would pass its limit on this device
    kPoolSize,     ///< more than the device's pool holds besides what is promised to others
    kNoMemory,     ///< others hold it, or it is kept for guarantees
    kDebt,         ///< the tenant, or one that it belongs to, uses more than its limit
    kTurn,         ///< there is memory, but others are first
  };
  /// A process, or, with session 0, a tenant as a whole.
  struct Holder {
    std::uint64_t session = 0;
    std::int64_t pid = 0;
    std::string command;
    Bytes charged;
    std::string tenant;
  };
  /// The soonest that the request could have succeeded.
  struct Soonest {
    /// Nothing: it depends on what others do of their own accord.
    std::optional<std::chrono::milliseconds> within;
    std::string why;
  };

  Reason reason = Reason::kUnknown;
  std::string device;
  std::string tenant;
  Bytes asked;        ///< what was wished
  Bytes asked_least;  ///< what would have been enough
  Bytes tenant_limit;
  Bytes tenant_guarantee;
  Bytes tenant_charged;
  Bytes pool;
  Bytes free;             ///< in the pool and charged to nobody
  Bytes kept_for_others;  ///< of `free`: needed by other tenants' guarantees
  Bytes charged_to_others;
  std::uint64_t waiters_ahead = 0;
  std::chrono::milliseconds waited{0};
  std::chrono::milliseconds wait_limit{0};
  std::string limiting_tenant;  ///< whose limit it is, of kTenantLimit and kDebt
  Bytes limiting_limit;
  Bytes limiting_charged;
  Bytes returning;   ///< on its way back: will be free soon
  Bytes asked_back;  ///< of borrowers, for requests such as this one
  Soonest soonest;
  std::vector<Holder> holders;        ///< of the caller's own tenant, largest first
  std::vector<Holder> other_tenants;  ///< largest first; told to administrators only
};

/// An Error that may say more. `message` alone is complete for people.
struct GrowError : Error {
  std::optional<Denial> denial;

  GrowError(Error error) : Error(std::move(error)) {}  // NOLINT(*-explicit-*)
  GrowError(Error error, Denial why) : Error(std::move(error)), denial(std::move(why)) {}
};

}  // namespace gpumem
