#pragma once
#include <string>
#include <vector>

#include "daemon/core/quota_admin.h"
#include "daemon/host/quota_overlay.h"

namespace gpumem::host {

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
