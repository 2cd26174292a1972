#pragma once
#include <string>

#include "daemon/metrics/sampler.h"

namespace gpumem::metrics {

/// The snapshot as OpenMetrics text. docs/metrics.md has every name that can be in it.
std::string render(const Snapshot& snapshot);

}  // namespace gpumem::metrics
