#pragma once
#include <string>

#include "base/text/device_name.h"

namespace gpumem {

/// Why a part of the pool of `device` is missing, for messages.
inline std::string missing_because(std::string_view device) {
  return device == kHostStore
             ? "because others use the machine's memory, or the system refuses it, as the broker's log says"
             : "because others use the device";
}

}  // namespace gpumem
