#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "daemon/core/types.h"

namespace gpumem::host {

/// The administrators: root, and the members of one group, if one is configured. Limits leave room for them.
/// A process of a pod is no administrator, whatever its user, unless the pod shares the machine's PIDs
/// (hostPID).
/// Threads  any.
class Administrators {
 public:
  explicit Administrators(std::optional<std::uint32_t> gid = {}) { set_group(gid); }

  void set_group(std::optional<std::uint32_t> gid) { gid_ = gid ? std::int64_t{*gid} : kNone; }
  bool include(const core::Peer& peer) const {
    if (peer.contained) return false;
    const std::int64_t gid = gid_;
    return peer.uid == 0 ||
           std::any_of(peer.gids.begin(), peer.gids.end(), [&](std::uint32_t one) { return one == gid; });
  }

 private:
  static constexpr std::int64_t kNone = -1;

  std::atomic<std::int64_t> gid_ = kNone;
};

}  // namespace gpumem::host
