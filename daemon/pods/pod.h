#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace gpumem::pods {

/// A container of a pod, as the cgroup that the kubelet made for it says.
struct Container {
  std::string pod;  ///< uid: with dashes, or, of a static pod, 32 hexadecimal digits
  std::string id;   ///< as the runtime calls it; empty: in the pod, but in none of its containers
  bool operator==(const Container&) const = default;
};

/// The place of a process among pods, by its /proc/PID/cgroup.
struct PodLocation {
  std::optional<Container> container{};
  /// There is no container, and yet it may be in a pod: below what the kubelet made there is something that
  /// is not understood, or hierarchies name different pods.
  bool is_unclear = false;
};

/// The container in which a process is whose /proc/PID/cgroup reads `text`; nothing: it is in no pod. Knows
/// both versions of cgroups, the kubelet's two drivers, its three classes, and paths as a broker sees them
/// that is itself in a cgroup namespace, as in a pod. `root`  the kubelet's --cgroup-root, as `/` or
/// `/kubelet`. A process names no other pod by cgroups that it makes itself: only what the kubelet made is
/// read, which is the outermost.
PodLocation location_of(std::string_view text, std::string_view root = "/");

inline std::optional<Container> container_of(std::string_view text, std::string_view root = "/") {
  return location_of(text, root).container;
}

}  // namespace gpumem::pods
