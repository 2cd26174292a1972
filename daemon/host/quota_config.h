#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "gpumem/bytes.h"

namespace gpumem::host {

/// A quota as written; percent is of the device's pool. What is missing comes from the next wider quota.
struct QuotaConfig {
  std::optional<Amount> guarantee;        ///< else 0
  std::optional<Amount> limit;            ///< else the whole pool
  std::optional<std::uint32_t> weight;    ///< else core::kDefaultWeight
  std::optional<std::uint32_t> priority;  ///< else core::kDefaultPriority
  bool operator==(const QuotaConfig&) const = default;
  bool says_nothing() const { return *this == QuotaConfig{}; }
};

/// Quotas on every device, and other ones on some.
struct QuotasConfig {
  QuotaConfig everywhere;
  std::map<std::string, QuotaConfig> by_device;  ///< UUID
  bool operator==(const QuotasConfig&) const = default;
};

}  // namespace gpumem::host
