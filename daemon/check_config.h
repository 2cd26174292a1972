#pragma once
#include "daemon/configuration.h"
#include "gpumem/result.h"

namespace gpumem {

/// Says what the configuration comes to on this machine for a broker that starts now. One that serves the
/// same runtime folder ends before: what it holds counts as available, as its journal and the driver tell.
/// Changes nothing. Errors  as Daemon::start(), for what is configured.
Result<void> check_config(const Options& options);

}  // namespace gpumem
