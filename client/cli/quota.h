#pragma once
#include <string>

#include "client/cli/views.h"

namespace CLI {
class App;
}

namespace gpumem::cli {

/// Adds the command `quota`: what tenants may have, and changes of it while the broker runs.
/// `runtime_dir`, `status`  are read and set when the command line has been parsed.
void add_quota_command(CLI::App& app, const std::string& runtime_dir, int& status);

/// Tenants under their parents.
std::string quotas_text(const v1::ListQuotasResponse& quotas);
Json quotas_json(const v1::ListQuotasResponse& quotas);

/// The quota before and after the change.
std::string quota_change_text(const v1::SetQuotaResponse& change);
Json quota_change_json(const v1::SetQuotaResponse& change);

}  // namespace gpumem::cli
