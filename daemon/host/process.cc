#include "daemon/host/process.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "base/printable.h"
#include "daemon/host/process_signal.h"
#include "daemon/host/process_stat.h"

namespace gpumem::host {
namespace {

std::string folder_of(std::int64_t pid) { return "/proc/" + std::to_string(pid); }

// Lines such as `Uid: real effective saved filesystem`.
std::uint32_t effective(std::istringstream& line) {
  std::uint32_t real = 0, effective = 0;
  line >> real >> effective;
  return effective;
}

// False if the file could not be read, or not to its end.
bool read_owner(std::int64_t pid, Process& process) {
  std::ifstream lines(folder_of(pid) + "/status");
  bool has_uid = false, has_groups = false;
  for (std::string text; std::getline(lines, text);) {
    std::istringstream line(text);
    std::string key;
    line >> key;
    if (key == "Uid:") {
      process.uid = effective(line);
      has_uid = static_cast<bool>(line);
    } else if (key == "Gid:") {
      process.gids.push_back(effective(line));
    } else if (key == "Groups:") {
      for (std::uint32_t gid = 0; line >> gid;) process.gids.push_back(gid);
      has_groups = true;
    }
  }
  return has_uid && has_groups;
}

}  // namespace

std::string command_of(std::int64_t pid) {
  auto stat = stat_of(pid);
  return stat ? printable_ascii(std::move(stat->command)) : std::string();
}

Result<Process> find_process(std::int64_t pid, const PodReader& pods) {
  Process process;
  if (auto stat = stat_of(pid)) {
    process.started = stat->started.value_or(0);
    process.command = printable_ascii(std::move(stat->command));
  }
  const bool has_owner = process.started != 0 && read_owner(pid, process);
  process.in = pods.find(pid);
  // Both times the same: all of it is of one process.
  if (has_owner && start_time(pid).value_or(0) == process.started) return process;
  const std::string name = "process " + std::to_string(pid);
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)
    return Error{Code::kNotFound, name + " is gone"};
  return Error{Code::kPermissionDenied, name + " is hidden; /proc is mounted with hidepid"};
}

}  // namespace gpumem::host
