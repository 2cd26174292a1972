#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/words/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// Why a request was refused, waited in vain, or waits: figures of that moment.
struct Denial {
  /// The numbers are those of gpumem.v1.Denial.Reason.
  enum class Reason : std::uint8_t {
    kSliceLimit = 1,   ///< the slice would pass its own limit
    kTenantLimit = 2,  ///< the tenant, or one above it, would pass its limit
    kPoolSize = 3,     ///< more than the pool holds besides what is promised to others
    kNoMemory = 4,     ///< the memory is held by others, or kept for guarantees
    kDebt = 5,         ///< the tenant, or one above it, uses more than its limit
    kTurn = 6,         ///< there is memory, but others are first
  };
  /// The bound that kTenantLimit and kDebt are about.
  enum class Limit : std::uint8_t {
    kTenants = 0,  ///< the limit of `limiting_tenant`
    kJobs = 1,     ///< the limit of the job `limiting_tenant`
    kReserve = 2,  ///< the most that the tenant's jobs may have reserved together (Quota::reserve)
  };
  struct Holder {
    SessionId session;  ///< none: a tenant as a whole
    std::int64_t pid = 0;
    std::string command;
    Bytes charged;
    std::string tenant;
  };
  /// The soonest that the request could succeed, from now.
  struct Soonest {
    std::optional<Duration> within;  ///< nothing: it depends on what others do of their own accord
    std::string why;
  };

  Reason reason = Reason::kNoMemory;
  RequestId request;
  SessionId session;
  std::string device;       ///< UUID
  std::string device_name;  ///< for people: `gpu0`
  std::string tenant;
  Bytes asked;
  Bytes asked_min;
  Bytes context;  ///< of a request for a context, what that takes; `asked` is what the driver lacks for it
  Bytes slice_limit;
  Quota quota;
  Bytes charged;                ///< to the tenant
  std::string limiting_tenant;  ///< owner of the limit, of kTenantLimit, kDebt and kPoolSize
  Limit limit = Limit::kTenants;
  Bytes limiting_limit;
  Bytes limiting_charged;
  /// Of `limiting_limit`, for guarantees of others below its owner: of kTenantLimit what they have not used,
  /// of kPoolSize all. Zero for kPoolSize: no limit is in the way, but the pool.
  Bytes limiting_kept;
  Bytes limiting_reserved;  ///< of `limiting_charged`: reserved by jobs and not used
  Bytes limiting_contexts;  ///< of `limiting_charged`, of a job's limit: contexts of its processes
  Bytes reserved;           ///< of `charged`: the same
  bool by_jobs = false;     ///< the limit would have room if other jobs had reserved no more than they use
  Bytes pool;
  Bytes free;
  Bytes missing;     ///< of `pool`: the driver does not give it, because others or contexts use the device
  Bytes contexts;    ///< of `missing`: contexts of clients have taken it
  Bytes returning;   ///< on its way back
  Bytes asked_back;  ///< of borrowers
  Bytes kept_for_others;       ///< of `free`: what others' guarantees still need
  Bytes guaranteed_to_others;  ///< of `pool`
  Bytes charged_to_others;
  Bytes unanswered;  ///< of ended processes of the tenant, not free: it may not borrow from guarantees
  std::size_t waiters_ahead = 0;
  Duration waited{};
  Duration unread{};  ///< of `waited`: before the broker read the request
  Duration wait_limit{};
  Soonest soonest;
  std::vector<Holder> holders;        ///< of the tenant, largest first
  std::vector<Holder> other_tenants;  ///< largest first; for administrators only
};

/// The denial in words that are complete without the figures.
std::string explain(const Denial& denial);

/// The denial's code: kDeadlineExceeded after a wait, else kResourceExhausted.
Code code_of(const Denial& denial);

/// A failed growth: the error, and the figures where it is a denial.
struct GrowFailure {
  Error error;
  std::optional<Denial> denial;
};

}  // namespace gpumem::core
