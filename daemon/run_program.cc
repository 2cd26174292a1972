#include "daemon/run_program.h"

#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/system/unique_fd.h"
#include "base/text/exec_words.h"

namespace gpumem {
namespace {

// A program that the kernel does not end, as in a driver's call, is left behind.
constexpr std::chrono::seconds kToDie{2};

bool ends_in(const UniqueFd& process, std::chrono::milliseconds patience) {
  pollfd ended{process.get(), POLLIN, 0};
  return process.valid() && ::poll(&ended, 1, static_cast<int>(patience.count())) > 0;
}

}  // namespace

Result<int> run_program(const std::string& program, std::vector<std::string> arguments,
                        std::chrono::seconds patience, int errors, int output) {
  posix_spawnattr_t attributes{};
  posix_spawn_file_actions_t files{};
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_init(&files);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  if (errors >= 0) ::posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO);
  if (output >= 0) ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  pid_t pid = 0;
  const int failed =
      ::posix_spawn(&pid, program.c_str(), &files, &attributes, exec_words(arguments).data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) return errno_error(failed, "cannot run " + program);
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const bool in_time = ends_in(process, patience);
  if (!in_time) ::kill(pid, SIGKILL);
  int status = 0;
  if (in_time || ends_in(process, kToDie)) ::waitpid(pid, &status, 0);
  if (in_time) return status;
  return Error{Code::kDeadlineExceeded, "it took longer than " + std::to_string(patience.count()) + " s"};
}

}  // namespace gpumem
