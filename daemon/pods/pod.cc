#include "daemon/pods/pod.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace gpumem::pods {
namespace {

using Words = std::vector<std::string_view>;
using Rest = std::span<const std::string_view>;

constexpr std::string_view kSlice = ".slice", kScope = ".scope";

Words split(std::string_view text, char at) {
  Words words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    if (end != 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

bool is_hexadecimal(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// As uid of a pod: 8-4-4-4-12 digits, or 32 of them. systemd has `_` where the rest of the world has `-`.
std::optional<std::string> uid_in(std::string_view text) {
  std::string uid(text);
  std::ranges::replace(uid, '_', '-');
  if (uid.size() == 32) return std::ranges::all_of(uid, is_hexadecimal) ? std::optional(uid) : std::nullopt;
  if (uid.size() != 36) return std::nullopt;
  constexpr std::array<std::size_t, 4> dashes{8, 13, 18, 23};
  for (std::size_t i = 0; i < uid.size(); ++i) {
    const bool is_dash = std::ranges::find(dashes, i) != dashes.end();
    if (is_dash ? uid[i] != '-' : !is_hexadecimal(uid[i])) return std::nullopt;
  }
  return uid;
}

// `cri-containerd-ID.scope`, `crio-ID.scope`, `ID`.
std::string container_id(std::string_view name) {
  if (name.ends_with(kScope)) {
    name.remove_suffix(kScope.size());
    name.remove_prefix(name.rfind('-') + 1);  // none: nothing
  }
  return std::string(name);
}

// The names of the kubelet's cgroups, one below the other: its root, the one of all pods, of a class, of a
// pod.
class Levels {
 public:
  explicit Levels(std::string_view root) : path_(split(root, '/')) { path_.emplace_back("kubepods"); }

  /// Takes the next name off, if it is this level's.
  bool take_root(Rest& rest) const {
    for (std::size_t i = 0; i < path_.size(); ++i)
      if (!take(rest, i, path_[i])) return false;
    return true;
  }
  void take_class(Rest& rest) const {
    for (const std::string_view name : {"burstable", "besteffort"})
      if (take(rest, path_.size(), name)) return;
  }
  std::optional<std::string> take_pod(Rest& rest) const;

 private:
  // systemd's slices have the names of all above them in their own.
  bool take(Rest& rest, std::size_t level, std::string_view name) const {
    if (rest.empty() ||
        (rest[0] != name && rest[0] != prefix(level) + std::string(name) + std::string(kSlice)))
      return false;
    rest = rest.subspan(1);
    return true;
  }
  std::string prefix(std::size_t levels) const {
    std::string all;
    for (std::size_t i = 0; i < levels; ++i) all += std::string(path_[i]) + "-";
    return all;
  }

  Words path_;
};

std::optional<std::string> Levels::take_pod(Rest& rest) const {
  if (rest.empty()) return std::nullopt;
  std::string_view name = rest[0];
  if (name.ends_with(kSlice)) {
    const std::string above = prefix(path_.size());
    if (!name.starts_with(above)) return std::nullopt;
    name = name.substr(above.size(), name.size() - above.size() - kSlice.size());
    for (const std::string_view of_class : {"burstable-", "besteffort-"})
      if (name.starts_with(of_class)) name.remove_prefix(of_class.size());
  }
  if (!name.starts_with("pod")) return std::nullopt;
  auto uid = uid_in(name.substr(3));
  if (uid) rest = rest.subspan(1);
  return uid;
}

// Removes the mark that the kernel appends to the path of a cgroup that was removed while a process was in
// it.
std::string_view without_mark(std::string_view path) {
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  return path;
}

// Whether one of them is the kubelet's name for pods, or for one pod.
bool name_pods(const Words& words) {
  return std::ranges::any_of(words, [](std::string_view one) {
    return one.find("kubepods") != one.npos || (one.starts_with("pod") && uid_in(one.substr(3)));
  });
}

// A pod in another place than the kubelet's root would count as the machine's own, and its root administer.
PodLocation location_in(std::string_view path, const Levels& levels) {
  const Words words = split(without_mark(path), '/');
  Rest rest(words);
  // Above one's own cgroup namespace: whatever is above the pods is not to be seen.
  const bool is_relative = !rest.empty() && rest[0] == "..";
  while (!rest.empty() && rest[0] == "..") rest = rest.subspan(1);
  const bool is_below_root = levels.take_root(rest);
  if (!is_below_root && !is_relative) return {.container = {}, .is_unclear = name_pods(words)};
  levels.take_class(rest);
  auto pod = levels.take_pod(rest);
  if (pod) return {.container = Container{std::move(*pod), rest.empty() ? "" : container_id(rest[0])}};
  const bool is_like_a_pod = name_pods(words) || (!rest.empty() && rest[0].starts_with("pod"));
  return {.container = {}, .is_unclear = is_below_root ? !rest.empty() : is_like_a_pod};
}

}  // namespace

PodLocation location_of(std::string_view text, std::string_view root) {
  const Levels levels(root);
  PodLocation found;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    PodLocation here = location_in(line.substr(second + 1), levels);
    if (here.is_unclear) return here;
    if (!here.container) continue;
    if (found.container && found.container->pod != here.container->pod)
      return {.container = {}, .is_unclear = true};
    if (!found.container || found.container->id.empty()) found = std::move(here);
  }
  return found;
}

}  // namespace gpumem::pods
