#pragma once
#include <string>
#include <vector>

#include "client/cli/time_text.h"
#include "client/cli/views.h"

namespace gpumem::cli {

/// How a tenant stands on each device, and for each request that waits what it waits for, in words and
/// figures. `denials`  the tenant's latest, the latest first, as of `now`: told where nothing waits.
std::string why_text(const v1::ExplainResponse& explained, const std::vector<v1::Event>& denials = {},
                     WallTime now = {});
Json why_json(const v1::ExplainResponse& explained, const std::vector<v1::Event>& denials = {});

/// The obstacle of a request, in words that are complete without the figures.
std::string obstacle_words(const v1::Denial& denial);

}  // namespace gpumem::cli
