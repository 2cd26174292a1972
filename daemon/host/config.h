#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Amounts as written; percent is of the device's pool. What is missing comes from the next wider quota.
struct QuotaConfig {
  std::optional<Amount> guarantee;  ///< else 0
  std::optional<Amount> limit;      ///< else the whole pool
};

/// Quotas on every device, and other ones on some.
struct QuotasConfig {
  QuotaConfig everywhere;
  std::map<std::string, QuotaConfig> by_device;  ///< UUID
};

struct TenantConfig {
  std::string name;
  std::string user;   ///< name or number; empty: none
  std::string group;  ///< name or number; empty: none
  QuotasConfig quotas;
};

/// What the configuration file says: plain data, nothing looked up.
struct Config {
  std::filesystem::path runtime_folder = "/run/gpumemd";
  std::string socket_group;  ///< empty: the daemon's own
  std::size_t max_sessions = 4096;
  std::size_t max_sessions_per_tenant = 2048;
  std::int64_t max_wait_seconds = 3600;

  Amount reserve = Amount::percent(9'000);
  std::map<std::string, Amount> reserve_by_device;  ///< UUID
  std::vector<std::string> devices;                 ///< UUIDs to lend; empty: all

  std::vector<TenantConfig> tenants;
  std::optional<QuotasConfig> others = QuotasConfig{};  ///< none: users without a tenant are refused
};

/// Reads TOML. `source` names it in messages.
/// Errors  kInvalidArgument: `source:line:column: what is wrong and what is allowed`; unknown keys too.
Result<Config> parse_config(std::string_view text, const std::string& source);

/// Reads the file. Errors  as parse_config; kNotFound, kPermissionDenied.
Result<Config> load_config(const std::filesystem::path& file);

}  // namespace gpumem::host
