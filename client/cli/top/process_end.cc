#include "client/cli/top/process_end.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <utility>

#include "base/system/process_stat.h"

namespace gpumem::cli::top {
namespace {

std::string command_for(const Row& row) { return "gpumem end " + std::to_string(row.id); }

bool belongs_to(std::int64_t pid, std::uint32_t uid) {
  struct stat found {};
  return ::stat(("/proc/" + std::to_string(pid)).c_str(), &found) == 0 && found.st_uid == uid;
}

// Whether the process began before the row's session did: else its pid is another one's by now.
bool is_as_old_as(std::int64_t pid, std::chrono::seconds age) {
  const auto stat = stat_of(pid);
  double up = 0;
  if (!stat || !stat->started || !(std::ifstream("/proc/uptime") >> up)) return false;
  const double started = static_cast<double>(*stat->started) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  constexpr double kRounding = 2;
  return up - started + kRounding >= static_cast<double>(age.count());
}

Error has_ended() { return {Code::kNotFound, "the process has ended"}; }

}  // namespace

ProcessEnd::ProcessEnd(UniqueFd process, std::string name)
    : process_(std::move(process)), name_(std::move(name)), question_("send SIGTERM to " + name_ + "? y/n") {}

Result<ProcessEnd> ProcessEnd::prepare(const Row& row) {
  if (row.kind == Row::Kind::kTenant) return Error{Code::kFailedPrecondition, "select a process or a job"};
  if (row.kind == Row::Kind::kJob)
    return Error{Code::kFailedPrecondition, "a job is ended by: " + command_for(row)};
  if (row.pid == 0)
    return Error{Code::kFailedPrecondition,
                 "no process is known here; the broker may end it: " + command_for(row)};
  if (row.uid != ::geteuid())
    return Error{Code::kPermissionDenied,
                 "of " + row.user + "; an administrator ends it by: " + command_for(row)};
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(row.pid), 0)));
  if (!process.valid()) return has_ended();
  if (!belongs_to(row.pid, row.uid))
    return Error{Code::kFailedPrecondition,
                 "pid " + std::to_string(row.pid) +
                     " is another user's process here (another PID namespace?); try: " + command_for(row)};
  if (!is_as_old_as(row.pid, row.age)) return has_ended();
  return ProcessEnd(std::move(process), row.name + " (pid " + std::to_string(row.pid) + ")");
}

Result<std::string> ProcessEnd::carry_out() const {
  if (::syscall(SYS_pidfd_send_signal, process_.get(), SIGTERM, nullptr, 0) == 0)
    return name_ + " has got SIGTERM";
  if (errno == ESRCH) return has_ended();
  return Error{Code::kPermissionDenied, "the kernel refuses it"};
}

}  // namespace gpumem::cli::top
