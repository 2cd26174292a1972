#pragma once
#include <string>

#include "client/cli/views.h"

namespace gpumem::cli {

/// How a tenant stands on each device, and for each request that waits what it waits for, in words and
/// figures.
std::string why_text(const v1::ExplainResponse& explained);
Json why_json(const v1::ExplainResponse& explained);

/// What stands in the way of a request, in words that are complete without the figures.
std::string obstacle_words(const v1::Denial& denial);

}  // namespace gpumem::cli
