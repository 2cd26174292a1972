#pragma once
#include "daemon/host/pod_reader.h"

namespace gpumem::host {

/// What the broker makes use of where the kernel has it. Tests switch a feature off to run the fallback.
struct KernelFeatures {
  bool pass_rights = true;  ///< SO_PASSRIGHTS, Linux 6.16: a socket that takes no descriptors
  bool peer_pidfd = true;   ///< SO_PEERPIDFD, Linux 6.5: a handle of the process that connected
  PodReader pods{};         ///< where the kernel shows in which pod a process is
};

}  // namespace gpumem::host
