#include "daemon/host/system/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <sstream>
#include <utility>

#include "base/system/files.h"
#include "base/system/unique_fd.h"
#include "base/text/printable.h"
#include "daemon/pods/pod.h"

namespace gpumem::host {
namespace {

Error gone(const std::string& who) { return {Code::kNotFound, who + " is gone"}; }

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

// Nothing: the kernel does not show it of this task any more.
std::optional<PodReader::Found> find_task(const std::filesystem::path& task, const std::string& cgroup_root) {
  const auto cgroup = read_text(task / "cgroup");
  if (!cgroup || cgroup->empty()) return PodReader::Found{.pod = {}, .unknown = true};  // ended, or hidden
  pods::PodLocation there = pods::location_of(*cgroup, cgroup_root);
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

std::string folder_of(std::int64_t pid) { return "/proc/" + std::to_string(pid); }

// Lines such as `Uid: real effective saved filesystem`.
std::uint32_t effective(std::istringstream& line) {
  std::uint32_t real = 0, effective = 0;
  line >> real >> effective;
  return effective;
}

// False if the file could not be read, or not to its end.
bool read_owner(std::int64_t pid, Process& process) {
  const auto status = read_text(folder_of(pid) + "/status");
  if (!status) return false;
  process.facts = system_mode::ProcessFacts::in(*status).value_or(system_mode::ProcessFacts{});
  std::istringstream lines(*status);
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

int signal_number(core::Signal signal) { return signal == core::Signal::kKill ? SIGKILL : SIGTERM; }

Result<std::uint64_t> start_time(std::int64_t pid) {
  const auto stat = stat_of(pid);
  if (!stat || !stat->started) return gone("process " + std::to_string(pid));
  return *stat->started;
}

bool has_ended(int pidfd) {
  pollfd waiting{pidfd, POLLIN, 0};
  return ::poll(&waiting, 1, 0) > 0;
}

Result<void> signal_process(int pidfd, core::Signal signal) {
  if (::syscall(SYS_pidfd_send_signal, pidfd, signal_number(signal), nullptr, 0) == 0) return {};
  return errno == ESRCH ? gone("the process") : errno_error(errno, "cannot signal the process");
}

Result<UniqueFd> open_process(std::int64_t pid, std::uint64_t started) {
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  if (!pidfd.valid())
    return errno == ESRCH ? gone("process " + std::to_string(pid))
                          : errno_error(errno, "cannot reach the process");
  // In this order: while the descriptor's process lives, what /proc tells of its number is its own.
  const auto found = start_time(pid);
  if (!found) return found.error();
  if (*found != started) return gone("the process that was meant by pid " + std::to_string(pid));
  return pidfd;
}

Result<void> signal_process(std::int64_t pid, std::uint64_t started, core::Signal signal) {
  const auto process = open_process(pid, started);
  return process ? signal_process(process->get(), signal) : process.error();
}

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

Result<void> ProcessWatch::watch(UniqueFd& pidfd) {
  boost::system::error_code error;
  process_.assign(pidfd.get(), error);
  if (error) return Error{Code::kResourceExhausted, "cannot watch the process: " + error.message()};
  static_cast<void>(pidfd.release());
  watching_ = true;
  return {};
}

// An event of a descriptor that is closed in the same round of the loop may be told of the descriptor that
// takes its place there. So the process is asked.
void ProcessWatch::await_end(std::function<void()> ended) {
  process_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, ended = std::move(ended)](const boost::system::error_code& error) mutable {
                        if (error) return;
                        if (!has_ended(process_.native_handle())) return await_end(std::move(ended));
                        watching_ = false;
                        ended();
                      });
}

void ProcessWatch::stop() {
  watching_ = false;
  boost::system::error_code ignored;
  process_.close(ignored);
}

std::shared_ptr<const UniqueFd> ProcessWatch::handle() {
  if (handle_) return handle_;
  UniqueFd own = process_.is_open() ? duplicate_of(process_.native_handle()) : UniqueFd();
  if (own.valid() || !process_.is_open()) handle_ = std::make_shared<const UniqueFd>(std::move(own));
  return handle_;
}

Result<void> ProcessWatch::signal(core::Signal signal) {
  if (process_.is_open()) return signal_process(process_.native_handle(), signal);
  return Error{Code::kFailedPrecondition, "the kernel does not let the broker signal this process"};
}

}  // namespace gpumem::host
