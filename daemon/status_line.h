#pragma once
#include <string>
#include <vector>

#include "daemon/core/views.h"

namespace gpumem {

/// How the broker's devices stand, all together, on one line: for `systemctl status`.
std::string status_line(const std::vector<core::DeviceView>& devices);

}  // namespace gpumem
