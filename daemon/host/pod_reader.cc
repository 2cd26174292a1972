#include "daemon/host/pod_reader.h"

#include <algorithm>
#include <sstream>

#include "daemon/host/files.h"
#include "daemon/pods/pod.h"

namespace gpumem::host {
namespace {

// `NSpid:  4711  7`: the process's number in each PID namespace, from ours down to its own. Where there is no
// such line it is taken to be in one of its own.
bool has_own_pids(const std::string& status) {
  constexpr std::string_view kKey = "\nNSpid:";
  const std::size_t at = status.find(kKey);
  if (at == status.npos) return true;
  std::istringstream numbers(status.substr(at + kKey.size(), status.find('\n', at + 1) - at - kKey.size()));
  std::int64_t own = 0;
  std::int64_t deeper = 0;
  return !(numbers >> own) || numbers >> deeper;
}

}  // namespace

PodReader::Found PodReader::find(std::int64_t pid) const {
  if (pid == 0) return {.pod = {}, .unknown = true};
  const std::filesystem::path folder = processes / std::to_string(pid);
  const auto cgroup = read_text(folder / "cgroup");
  if (!cgroup || cgroup->empty()) return {.pod = {}, .unknown = true};  // it has ended, or is hidden
  auto container = pods::container_of(*cgroup, cgroup_root);
  if (!container) return {};
  const auto status = read_text(folder / "status");
  return {.pod = std::move(container->pod), .contained = !status || has_own_pids(*status)};
}

}  // namespace gpumem::host
