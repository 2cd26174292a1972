#include "client/cli/run/wake_at_end.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/unique_fd.h"

namespace gpumem::cli {
namespace {

constexpr int kAgainMilliseconds = 20;

// After a fork of threads: system calls alone. The end may come before this process's parent has stopped, so
// it is continued until it ends this.
[[noreturn]] void wake_at_end(int ended, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  ::setpgid(0, 0);  // what stops the group is not for it
  if (::dup2(ended, 0) != 0) ::_exit(0);
  ::syscall(SYS_close_range, 1U, ~0U, 0U);  // nobody waits for the end of a pipe that is open here
  pollfd polled{0, POLLIN, 0};
  while (::poll(&polled, 1, -1) <= 0) {
  }
  for (;; ::poll(nullptr, 0, kAgainMilliseconds)) ::kill(parent, SIGCONT);
}

}  // namespace

WakeAtEnd::WakeAtEnd(pid_t pid) {
  const UniqueFd ended(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!ended.valid()) return;
  const pid_t parent = ::getpid();
  watcher_ = ::fork();
  if (watcher_ == 0) wake_at_end(ended.get(), parent);
}

WakeAtEnd::~WakeAtEnd() {
  if (watcher_ <= 0) return;
  ::kill(watcher_, SIGKILL);
  ::waitpid(watcher_, nullptr, 0);
}

}  // namespace gpumem::cli
