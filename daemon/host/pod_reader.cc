#include "daemon/host/pod_reader.h"

#include <optional>
#include <sstream>
#include <utility>

#include "daemon/host/files.h"
#include "daemon/host/process_stat.h"
#include "daemon/pods/pod.h"

namespace gpumem::host {
namespace {

constexpr int kMostTasks = 64;  // a process with more ending tasks has made them on purpose

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

bool is_ending(const std::optional<ProcessStat>& stat) {
  constexpr std::uint64_t kExiting = 0x4;  // PF_EXITING
  return !stat || !stat->flags || (*stat->flags & kExiting) != 0;
}

// Nothing: the kernel does not show it of this task any more.
std::optional<PodReader::Found> find_task(const std::filesystem::path& task, const std::string& cgroup_root) {
  const auto cgroup = read_text(task / "cgroup");
  if (!cgroup || cgroup->empty()) return PodReader::Found{.pod = {}, .unknown = true};  // ended, or hidden
  pods::Whereabouts there = pods::whereabouts_of(*cgroup, cgroup_root);
  if (there.is_unclear) return PodReader::Found{.pod = {}, .unknown = true, .contained = true};
  if (there.container) {
    const auto status = read_text(task / "status");
    return PodReader::Found{.pod = std::move(there.container->pod),
                            .contained = !status || has_own_pids(*status)};
  }
  // Of a task that ends the kernel shows the root as its cgroup, in the first version of cgroups.
  const auto text = read_stat(task);
  if (!text) return PodReader::Found{};  // the process has ended: the caller's handle shows that
  auto stat = parse_stat(*text);
  if (is_ending(stat)) return std::nullopt;
  return PodReader::Found{.pod = {}, .stat = std::move(stat)};
}

}  // namespace

PodReader::Found PodReader::find(std::int64_t pid) const {
  if (!looks) return {};
  if (pid == 0) return {.pod = {}, .unknown = true};
  const std::filesystem::path process = processes / std::to_string(pid);
  if (auto found = find_task(process, cgroup_root)) return std::move(*found);
  // A process may live on when its first thread has ended.
  std::error_code failed;
  int looked_at = 0;
  for (std::filesystem::directory_iterator task(process / "task", failed), end;
       !failed && task != end && looked_at < kMostTasks; task.increment(failed), ++looked_at) {
    auto found = find_task(task->path(), cgroup_root);
    if (!found || (found->unknown && !found->contained)) continue;
    found->stat.reset();  // the thread's
    return std::move(*found);
  }
  return {.pod = {}, .unknown = true, .contained = true};
}

}  // namespace gpumem::host
