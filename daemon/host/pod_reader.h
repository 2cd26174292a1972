#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "daemon/core/types.h"
#include "daemon/host/process_stat.h"

namespace gpumem::host {

/// Tells which pod of Kubernetes a process is in, by what the kernel shows of it: the cgroups that the
/// kubelet made.
struct PodReader {
  std::filesystem::path processes = "/proc";  ///< where PID/cgroup and PID/status are; tests have their own
  std::string cgroup_root = "/";              ///< the kubelet's --cgroup-root
  bool looks = true;                          ///< false: nobody is in a pod, and nothing is read

  struct Found {
    std::string pod;                    ///< as core::Peer::pod
    bool unknown = false;               ///< as core::Peer::pod_unknown
    bool contained = false;             ///< as core::Peer::contained; also where it cannot be told
    std::optional<ProcessStat> stat{};  ///< of the process, if that was read on the way
  };
  /// The answer is about the process with `pid` only if that still runs afterwards: the caller checks by a
  /// handle of it, or by its start time. `pid`  0: the kernel does not show it. Blocks: as /proc does.
  Found find(std::int64_t pid) const;
};

}  // namespace gpumem::host
