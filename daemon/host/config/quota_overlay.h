#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/broker/admin.h"
#include "daemon/host/config/config.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Quotas that were set at run time: where they say something, they go before those of the configuration.
struct QuotaOverlay {
  std::uint64_t revision = 0;  ///< grows with every change; 0: there was none
  std::string changed;         ///< RFC 3339; of the last change
  std::string changed_by;
  std::map<std::string, QuotasConfig> tenants;  ///< by name; each says something
  bool operator==(const QuotaOverlay&) const = default;
};

/// Reads what overlay_text() has written. `source` names it in messages.
/// Errors  kInvalidArgument: `source:line:column: what is wrong`.
Result<QuotaOverlay> parse_overlay(std::string_view text, const std::string& source);

/// The overlay as TOML, for people to read; nothing of it is lost.
std::string overlay_text(const QuotaOverlay& overlay);

/// `amount` in words that parse_amount() reads as the same.
std::string exact_text(const Amount& amount);

/// `overlay` with `change` in it; its revision is untouched. A quota for every device takes the place of what
/// was set for single ones. `devices`  the UUIDs of those that are lent. Errors  kInvalidArgument: no
/// amounts, out of range, nothing or too much asked for; kNotFound (device).
Result<QuotaOverlay> with_change(const QuotaOverlay& overlay, const core::QuotaChange& change,
                                 const std::vector<std::string>& devices);

/// Whether the pools of `policy` can hold the requested limit. A limit must not be cut down silently, because
/// the administrator would not learn the real one. Errors  kInvalidArgument: the limit is more than a pool;
/// names the pool. Malformed amounts are refused by with_change().
Result<void> check_limit(const core::QuotaChange& change, const core::Policy& policy);

/// Whether the overlay says something of the tenant's quota on the device.
bool says_something(const QuotaOverlay& overlay, const std::string& tenant, const std::string& device);

/// `limit 4GiB -> 8GiB on GPU-...; ...`: what has changed from `before` to `after`.
std::string difference(const core::QuotaOutcome& outcome);

}  // namespace gpumem::host
