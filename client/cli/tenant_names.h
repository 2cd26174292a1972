#pragma once
#include <string>
#include <vector>

#include "client/cli/monitor.h"

namespace gpumem::cli {

/// Those of `names` that are no tenants now; none where the broker does not tell. A tenant may come later: a
/// user without a session is none.
std::vector<std::string> unknown_tenants(const Monitor& monitor, const std::vector<std::string>& names);

}  // namespace gpumem::cli
