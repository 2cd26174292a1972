#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/owner.h"
#include "gpumem/bytes.h"

namespace gpumem::core {

/// An IPC handle as it goes from hand to hand. It entitles any session of the holder's tenant that has it, so
/// it has to be unguessable.
using HandleBytes = std::array<char, 64>;
/// A hash of what says what is in a region. The broker does not compute it, it only passes it on.
using LayoutDigest = std::array<char, 32>;
using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

/// In milliseconds, rounded up; never below zero: nothing is left of a time that has passed.
inline std::uint64_t to_milliseconds(Duration duration) {
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
}

using TenantId = Id<struct TenantTag>;
using JobId = Id<struct JobTag>;
using CommandJobId = Id<struct CommandJobTag>;
using ImportId = Id<struct ImportTag>;
using RegionId = Id<struct RegionTag>;
using ReservationId = Id<struct ReservationTag>;

/// A device's place in the broker's list; the same in the shared pages.
using DeviceIndex = std::size_t;

inline constexpr std::uint32_t kDefaultWeight = 100;
inline constexpr std::uint32_t kMaxWeight = 10'000;
inline constexpr std::uint32_t kDefaultPriority = 5;
inline constexpr std::uint32_t kMaxPriority = 9;

/// Regions, reservations and waits that end in one piece of work: about 0.1 ms. The others stay due.
inline constexpr std::size_t kMostInARow = 64;

/// As the largest extent of a request: its memory comes as one, of exactly its size.
inline constexpr Bytes kOneExtent{std::numeric_limits<std::uint64_t>::max()};

/// As a limit: it holds nothing back, however much is asked for.
inline constexpr Bytes kUnlimited{std::numeric_limits<std::uint64_t>::max()};

/// What a tenant may have on one device.
struct Quota {
  Bytes guarantee;
  Bytes limit;
  std::uint32_t weight = kDefaultWeight;      ///< in the split of unpromised memory; 1 to kMaxWeight
  std::uint32_t priority = kDefaultPriority;  ///< 0 to kMaxPriority; bursts of the higher go first
  Bytes reserve = kUnlimited;                 ///< the most that its jobs may have reserved, all together
  auto operator<=>(const Quota&) const = default;

  /// `burst` by the weight: what is compared where bursts are.
  double share_of(Bytes burst) const {
    return static_cast<double>(burst.count) / static_cast<double>(weight);
  }
};

using gpumem::Owner;

/// The process at the other end of a connection, as the kernel tells.
struct Peer {
  std::int64_t pid = 0;  ///< 0: unknown, it lives in another PID namespace
  std::uint32_t uid = 0;
  bool can_be_ended = true;         ///< the kernel gave a handle of the process that signals can be sent to
  bool maps = true;                 ///< memory can be handed to it: its session is no stream of gRPC
  std::vector<std::uint32_t> gids;  ///< the primary group first
  std::string command;
  /// Field 22 of /proc/PID/stat; without a pid its pidfd's inode; 0: unknown.
  std::uint64_t started = 0;
  std::string pod{};         ///< UID of the pod of Kubernetes that it is in; empty: it is in none
  bool pod_unknown = false;  ///< the kernel does not show in which pod it is, if it is in one
  /// In a pod that has PIDs of its own: its user and its groups are what the pod's author wrote, and say
  /// nothing of whose it is.
  bool contained = false;
  /// Its user is a subordinate id of this one, which the process is charged to. It has none of its rights.
  /// None: the user answers for itself.
  std::optional<Owner> owner{};

  bool operator==(const Peer&) const = default;

  /// The share that it uses of the bounds for each user: its pod's, else its owner's, else its user's.
  std::uint64_t account() const {
    constexpr std::uint64_t kOfAPod = std::uint64_t{1} << 63;
    if (!pod.empty()) return std::hash<std::string>{}(pod) | kOfAPod;
    return owner ? owner->uid : uid;
  }
  /// The user that answers for it: its owner, else its own. None: it is in a pod.
  std::optional<std::uint32_t> user() const {
    if (!pod.empty()) return std::nullopt;
    return owner ? owner->uid : uid;
  }
  /// Whether both are the same process, whoever it runs as now. False where the kernel does not tell.
  bool is_same_process(const Peer& other) const {
    return started != 0 && pid == other.pid && started == other.started;
  }
  /// Whether it may decide about the other process: it runs as the same user, or as its owner.
  bool may_decide_about(const Peer& other) const {
    if (pod != other.pod) return false;
    return uid == other.uid || (other.owner && other.owner->uid == uid);
  }
};

}  // namespace gpumem::core
