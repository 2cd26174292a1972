#include "client/cli/tenant_names.h"

#include <algorithm>

namespace gpumem::cli {

std::vector<std::string> unknown_tenants(const Monitor& monitor, const std::vector<std::string>& names) {
  const auto tenants = monitor.tenants();
  std::vector<std::string> unknown;
  for (const std::string& name : names) {
    if (!tenants || std::ranges::count(tenants->tenants(), name, &v1::TenantUsage::tenant) != 0) continue;
    unknown.push_back(name);
  }
  return unknown;
}

}  // namespace gpumem::cli
