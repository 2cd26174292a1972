#include "client/cli/run/wake_again.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace gpumem::cli {
namespace {

constexpr int kLookMilliseconds = 50;

// Of the text of /proc/PID/stat, where the state comes after the name in brackets. `t`: by a debugger.
bool is_stopped(int stat) {
  std::array<char, 512> text{};
  const ssize_t count = ::pread(stat, text.data(), text.size(), 0);
  const std::string_view read(text.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  const auto name_end = read.rfind(") ");
  if (name_end == std::string_view::npos) return false;
  const std::string_view state = read.substr(name_end + 2, 1);
  return state == "T" || state == "t";
}

// After a fork of threads: system calls alone. The command may go on or end before this process's parent has
// stopped, so that is continued until it ends this.
[[noreturn]] void wake_again(int stat, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  ::setpgid(0, 0);  // what stops the group is not for it
  if (::dup2(stat, 0) != 0) ::_exit(0);
  ::syscall(SYS_close_range, 1U, ~0U, 0U);  // nobody waits for the end of a pipe that is open here
  for (;; ::poll(nullptr, 0, kLookMilliseconds)) {
    if (!is_stopped(0)) ::kill(parent, SIGCONT);
  }
}

}  // namespace

WakeAgain::WakeAgain(pid_t pid) {
  const UniqueFd stat(::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!stat.valid()) return;
  const pid_t parent = ::getpid();
  watcher_ = ::fork();
  if (watcher_ == 0) wake_again(stat.get(), parent);
}

WakeAgain::~WakeAgain() {
  if (watcher_ <= 0) return;
  ::kill(watcher_, SIGKILL);
  ::waitpid(watcher_, nullptr, 0);
}

}  // namespace gpumem::cli
