#pragma once
#include <string>

#include "client/cli/views.h"
#include "gpumem/v1/claims.pb.h"

namespace CLI {
class App;
}

namespace gpumem::cli {

/// Adds the command `claims`: what is prepared for pods of Kubernetes. `runtime_dir`, `status`  are read and
/// set when the command line has been parsed.
void add_claims_command(CLI::App& app, const std::string& runtime_dir, int& status);

/// A line for each amount.
std::string claims_text(const v1::ListClaimsResponse& claims);
Json claims_json(const v1::ListClaimsResponse& claims);

}  // namespace gpumem::cli
