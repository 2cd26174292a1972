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

/// What a process is shown of a device: its slice; else the device, with what the broker tells everybody of
/// it; else, with neither, what the driver says.
struct DeviceView {
  std::optional<SliceFigures> slice;
  std::unique_ptr<const DeviceListing> listing;

  /// No listing: there is no broker that lives, or this process may not read it. A listing of another PID
  /// namespace names no processes.
  static DeviceView of(nvmlDevice_t device);
  /// Bytes of the process, if the view tells them. `pid`  one that the driver lists to this process.
  std::optional<std::uint64_t> used_by(unsigned pid) const;
  bool is_broker(unsigned pid) const { return listing && listing->broker == pid; }
};

}  // namespace gpumem::shim
