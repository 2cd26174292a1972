#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/monitor/monitor.h"

namespace gpumem::test {

/// What the broker shows at one moment.
struct CrashBooks {
  v1::DeviceStatus device;
  std::vector<v1::TenantUsage> tenants;
  std::vector<v1::SessionInfo> sessions;
};

/// None: there is no broker.
std::optional<CrashBooks> read_books(const std::string& folder);
/// Empty: as it must be.
std::string wrong_in(const CrashBooks& books);
std::uint64_t charged_to(const CrashBooks& books, pid_t pid);

}  // namespace gpumem::test
