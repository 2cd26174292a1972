#pragma once
#include <string>

#include "daemon/metrics/sampler.h"
#include "daemon/metrics/text_writer.h"

namespace gpumem::metrics {

/// The snapshot as OpenMetrics text. docs/metrics.md has every name that can be in it.
std::string render(const Snapshot& snapshot);

/// The part of it that is of tenants.
void render_tenants(const Snapshot& snapshot, TextWriter& writer);

/// Values of the label `kind` for charged bytes, in the order of core::Charge.
inline constexpr std::array<std::string_view, core::kCharges> kChargeKinds{"offered", "active", "returning",
                                                                           "quarantined"};
/// The `kind` of bytes that are charged outside the pool.
inline constexpr std::string_view kOutsideKind = "outside";

}  // namespace gpumem::metrics
