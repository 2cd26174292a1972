#pragma once
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/views.h"
#include "daemon/host/config.h"
#include "daemon/host/runtime_folder.h"
#include "daemon/metrics/metrics.h"

namespace gpumem {

/// How the broker's devices stand, all together, on one line: for `systemctl status`.
std::string status_line(const std::vector<core::DeviceView>& devices);

/// The group whose members may read the metrics by the Unix socket; empty: the broker's own.
inline const std::string& metrics_group(const host::Config& config) {
  return config.metrics.group.empty() ? config.admin_group : config.metrics.group;
}

/// Counts what happens from now on, and serves it in the runtime folder and where the configuration says. A
/// port that cannot be had is logged: memory is lent without it.
/// Errors  as RuntimeFolder's; kInvalidArgument (unknown group).
Result<std::unique_ptr<metrics::Metrics>> start_metrics(core::Executor& executor, host::RuntimeFolder& folder,
                                                        const host::Config& config, metrics::BrokerInfo info,
                                                        const host::KernelFeatures& kernel);

}  // namespace gpumem
