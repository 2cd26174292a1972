#pragma once
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// Why a request was refused, or waited in vain: figures of that moment.
struct Denial {
  enum class Reason { kSliceLimit, kTenantLimit, kPoolSize, kNoMemory };
  struct Holder {
    SessionId session;
    std::int64_t pid = 0;
    std::string command;
    Bytes charged;
  };

  Reason reason = Reason::kNoMemory;
  std::string device;
  std::string tenant;
  Bytes asked;
  Bytes slice_limit;
  Quota quota;
  Bytes charged;  ///< to the tenant
  Bytes pool;
  Bytes free;
  Bytes kept_for_others;       ///< of `free`: what others' guarantees still need
  Bytes guaranteed_to_others;  ///< of `pool`
  Bytes charged_to_others;
  std::size_t waiters_ahead = 0;
  Duration waited{};
  Duration wait_limit{};
  std::vector<Holder> holders;  ///< of the tenant, largest first
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
