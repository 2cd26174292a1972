#include "daemon/host/process_signal.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/unique_fd.h"
#include "daemon/host/process_stat.h"

namespace gpumem::host {
namespace {

Error gone(const std::string& who) { return {Code::kNotFound, who + " is gone"}; }

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
  if (!pidfd.valid()) {
    return errno == ESRCH ? gone("process " + std::to_string(pid))
                          : errno_error(errno, "cannot reach the process");
  }
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

}  // namespace gpumem::host
