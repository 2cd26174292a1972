#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "daemon/host/quota_config.h"
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

}  // namespace gpumem::host
