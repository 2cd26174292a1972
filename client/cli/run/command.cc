#include "client/cli/run/command.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/exec_words.h"
#include "client/cli/run/wake_at_end.h"

namespace gpumem::cli {
namespace {

[[noreturn]] void fail(int pipe, int number) {
  static_cast<void>(::write(pipe, &number, sizeof number) == sizeof number);
  ::_exit(kOwnFailure);
}

// Between fork and exec: other threads may have held any lock.
[[noreturn]] void become(const CommandOptions& options, char** words, char** environment,
                         const Signals& signals, int failed) {
  if (options.before_exec && !options.before_exec()) fail(failed, -1);
  signals.restore_child_signal();
  ::sigprocmask(SIG_SETMASK, &signals.before(), nullptr);
  ::execvpe(words[0], words, environment);
  fail(failed, errno);
}

// Of the child: why it could not become the program; 0 if it has.
int failure_of(int pipe) {
  int number = 0;
  ssize_t count = 0;
  while ((count = ::read(pipe, &number, sizeof number)) < 0 && errno == EINTR) {
  }
  return count == sizeof number ? number : 0;
}

}  // namespace

Environment own_environment() {
  Environment all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t sign = text.find('=', 1);
    if (sign != std::string::npos) all.emplace(text.substr(0, sign), text.substr(sign + 1));
  }
  return all;
}

std::vector<std::string> assignments(const Environment& environment) {
  std::vector<std::string> texts;
  texts.reserve(environment.size());
  for (const auto& [name, value] : environment) texts.push_back(name + "=" + value);
  return texts;
}

Result<Command, CommandError> Command::start(const CommandOptions& options, const Signals& signals) {
  std::vector<std::string> words = options.words;
  std::vector<std::string> texts = assignments(options.environment);
  const std::vector<char*> arguments = exec_words(words);
  const std::vector<char*> environment = exec_words(texts);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return CommandError(errno_error(errno, "cannot make a pipe"));
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t pid = ::fork();
  if (pid < 0) return CommandError(errno_error(errno, "cannot start a process"));
  if (pid == 0) {
    become(options, const_cast<char**>(arguments.data()), const_cast<char**>(environment.data()), signals,
           write_end.get());
  }
  write_end.reset();
  const Result<void> prepared = options.meanwhile ? options.meanwhile(pid) : Result<void>();
  const int number = failure_of(read_end.get());
  if (number == 0) return Command(pid);
  ::waitpid(pid, nullptr, 0);
  if (!prepared) return CommandError(prepared.error());
  if (number < 0) return CommandError({Code::kInternal, "'" + words[0] + "' could not be prepared"});
  return CommandError(errno_error(number, "cannot run '" + words[0] + "'"),
                      number == ENOENT ? kNotFound : kNotExecutable);
}

int Command::wait(const Signals& signals, const OtherEnded& other_ended) {
  GroupSentinel
      sentinel;  // behind the program: no signal is taken for one that has reached it before it was there
  for (;;) {
    const signalfd_siginfo signal = signals.next();
    if (signal.ssi_signo != SIGCHLD) {
      pass_on(signal, sentinel);
    } else if (const auto ended = reap(other_ended, sentinel)) {
      return *ended;
    }
  }
}

// Several ends may be told of by one signal.
std::optional<int> Command::reap(const OtherEnded& other_ended, GroupSentinel& sentinel) const {
  std::optional<int> ended;
  int status = 0;
  pid_t pid = 0;
  while ((pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
    if (pid != pid_) {
      if (!WIFSTOPPED(status) && !sentinel.note_end(pid) && other_ended) other_ended(pid, status);
    } else if (WIFSTOPPED(status)) {
      const WakeAtEnd wake(pid_);
      if (!goes_on()) stop_self();  // so that whoever waits for this process, such as a shell, learns of it
    } else {
      ended = status;
    }
  }
  return ended;
}

// Whether the command has been continued since it was seen to have stopped.
bool Command::goes_on() const {
  siginfo_t continued{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &continued, WCONTINUED | WNOHANG | WNOWAIT) == 0 &&
         continued.si_pid == pid_;
}

// A program that has left the group does not get what is sent to it; what the terminal sends is not for it.
void Command::pass_on(const signalfd_siginfo& signal, GroupSentinel& sentinel) const {
  if (signal.ssi_pid == static_cast<std::uint32_t>(::getpid())) return;  // SIGPIPE of what is said here
  const int number = static_cast<int>(signal.ssi_signo);
  const bool is_of_group = sentinel.has_received(number) && ::getpgid(pid_) == ::getpgrp();
  const bool is_of_terminal = signal.ssi_code == SI_KERNEL;
  if (!is_of_terminal && !is_of_group) ::kill(pid_, number);
}

bool Command::leaves_others() {
  siginfo_t nobody{};
  return ::waitid(P_ALL, 0, &nobody, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

int end_as(int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  die_by(WTERMSIG(wait_status));
}

}  // namespace gpumem::cli
