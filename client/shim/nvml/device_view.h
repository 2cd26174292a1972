#pragma once
#include <nvml.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "shm/device_page.h"

namespace gpumem::shim {

/// The calling process's limit on a device, its own use, and what is free, in bytes; used + free <= total.
struct SliceFigures {
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  std::uint64_t free = 0;
};

/// The view of a device that a process gets: its slice; else the device, with the broker's listing of it.
/// With neither, the driver's figures hold.
struct DeviceView {
  std::optional<SliceFigures> slice;
  std::unique_ptr<const DeviceListing> listing;

  /// No listing: there is no broker that lives, or this process may not read it. A listing of another PID
  /// namespace names no processes.
  static DeviceView of(nvmlDevice_t device);
  /// Bytes of the process, if the view tells them. `pid`  one that the driver lists to this process.
  std::optional<std::uint64_t> used_by(unsigned pid) const;
  bool is_broker(unsigned pid) const { return pid != 0 && listing && listing->broker == pid; }
};

}  // namespace gpumem::shim
