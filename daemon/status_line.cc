#include "daemon/status_line.h"

#include "gpumem/bytes.h"

namespace gpumem {

std::string status_line(const std::vector<core::DeviceView>& devices) {
  Bytes pool, charged;
  std::size_t waiting = 0;
  for (const core::DeviceView& device : devices) {
    pool += device.policy.pool;
    charged += device.charges.total();
    waiting += device.waiting;
  }
  return "lends " + to_string(pool) + " of " + std::to_string(devices.size()) +
         (devices.size() == 1 ? " GPU; " : " GPUs; ") + to_string(charged) + " charged, " +
         std::to_string(waiting) + (waiting == 1 ? " request waits" : " requests wait");
}

}  // namespace gpumem
