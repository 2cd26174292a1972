#pragma once
#include <string>
#include <vector>

#include "client/cli/monitor.h"

namespace gpumem::cli {

/// Returns the `names` that are no tenants now; none if the broker does not answer. A user without a session
/// is no tenant yet.
std::vector<std::string> unknown_tenants(const Monitor& monitor, const std::vector<std::string>& names);

}  // namespace gpumem::cli
