#include "client/cli/run/program/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/system/unique_fd.h"
#include "base/text/exec_words.h"

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

// A word over the channel between a command and the process that starts it; none at its end.
std::optional<int> receive(int channel, int flags = 0) {
  int word = 0;
  ssize_t count = 0;
  while ((count = ::recv(channel, &word, sizeof word, flags)) < 0 && errno == EINTR) {
  }
  return count == sizeof word ? std::optional(word) : std::nullopt;
}

bool send(int channel, int word) { return ::send(channel, &word, sizeof word, MSG_NOSIGNAL) == sizeof word; }

[[noreturn]] void fail(int channel, int number) {
  static_cast<void>(send(channel, number));
  ::_exit(kOwnFailure);
}

/// Between fork and exec: other threads may have held any lock.
struct Birth {
  const CommandOptions& options;
  char** words;
  char** environment;
  const Signals& signals;
  pid_t parent;
  int own, starters;  ///< the ends of the channel

  // SIGKILL: whoever kills `gpumem run` by it means the command, which cannot put it off either. The kernel
  // sends it at the end of the thread that has forked; that is the main one.
  [[noreturn]] void become() const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kOwnFailure);
    ::close(starters);  // so that the other process's end is seen
    if (options.before_exec && !options.before_exec()) fail(own, -1);
    if (!receive(own)) ::_exit(kOwnFailure);
    for (char** entry = environment; *entry != nullptr; ++entry) name_this_process(*entry);
    signals.restore_child_signal();
    ::sigprocmask(SIG_SETMASK, &signals.before(), nullptr);
    ::execvpe(words[0], words, environment);
    fail(own, errno);
  }
  // The last word of `entry`, if it is the room for a pid.
  static void name_this_process(char* entry) {
    char* const room = std::strstr(entry, kRoomForPid.data());
    if (room == nullptr) return;
    *std::to_chars(room, room + kRoomForPid.size(), ::getpid()).ptr = '\0';
  }
  static constexpr std::string_view kRoomForPid = "\x01pid of it\x01";
};

// A service manager names the process that it means, and starts this one: sd_listen_fds(3),
// sd_watchdog_enabled(3).
void mean_the_command(Environment& environment) {
  const std::string own = std::to_string(::getpid());
  for (const char* name : {"LISTEN_PID", "WATCHDOG_PID"}) {
    const auto found = environment.find(name);
    if (found == environment.end() || found->second != own) continue;
    found->second = Birth::kRoomForPid;
    if (found->first == "LISTEN_PID") environment.erase("LISTEN_PIDFDID");  // of this process, too
  }
}

// Whether `pid` is the service manager that has started this process.
bool is_service_manager(pid_t pid) {
  if (pid <= 0 || pid != ::getppid()) return false;
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  return std::getline(file, name) && name == "systemd";
}

/// While it lives, this process is continued (SIGCONT) when the process `pid`, a child, goes on or ends: a
/// process that stops with its command would hear of neither, if the command was continued a moment before
/// this one stopped, or by itself. Another process does this, where there is /proc.
class WakeAgain {
 public:
  explicit WakeAgain(pid_t pid);
  ~WakeAgain();
  WakeAgain(const WakeAgain&) = delete;
  WakeAgain& operator=(const WakeAgain&) = delete;

  /// The process that continues this one; -1 if there is none.
  pid_t watcher() const { return watcher_; }

 private:
  pid_t watcher_ = -1;
};

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

constexpr std::chrono::milliseconds kManagerPatience{100};

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

bool reap_next(const OtherEnded& ended) {
  siginfo_t one{};
  if (::waitid(P_ALL, 0, &one, WEXITED | WNOHANG | WNOWAIT) != 0 || one.si_pid == 0) return false;
  const int dumped = one.si_code == CLD_DUMPED ? WCOREFLAG : 0;
  ended(one.si_pid, one.si_code == CLD_EXITED ? W_EXITCODE(one.si_status, 0) : one.si_status | dumped);
  ::waitpid(one.si_pid, nullptr, WNOHANG);
  return true;
}

Result<Command, CommandError> Command::start(const CommandOptions& options, const Signals& signals) {
  std::vector<std::string> words = options.words;
  Environment meant = options.environment;
  mean_the_command(meant);
  std::vector<std::string> texts = assignments(meant);
  const std::vector<char*> arguments = exec_words(words);
  const std::vector<char*> environment = exec_words(texts);
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return CommandError(errno_error(errno, "cannot make a socket"));
  const UniqueFd channel(ends[0]);
  UniqueFd theirs(ends[1]);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  GPUMEM_CHECK(::gettid() == ::getpid(), "the command would end with this thread");
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return CommandError(errno_error(errno, "cannot start a process"));
  if (pid == 0) {
    Birth{options,
          const_cast<char**>(arguments.data()),
          const_cast<char**>(environment.data()),
          signals,
          parent,
          theirs.get(),
          channel.get()}
        .become();
  }
  theirs.reset();
  const Result<void> prepared = options.meanwhile ? options.meanwhile(pid) : Result<void>();
  Command command(pid);
  const int number = command.begin(channel.get(), signals);
  if (number == 0) return command;
  if (!command.ended_) ::waitpid(pid, nullptr, 0);
  if (!prepared) return CommandError(prepared.error());
  if (number < 0) return CommandError({Code::kInternal, "'" + words[0] + "' could not be prepared"});
  return CommandError(errno_error(number, "cannot run '" + words[0] + "'"),
                      number == ENOENT ? kNotFound : kNotExecutable);
}

// The new process keeps signals pending until it begins. So each can be passed on to it that has come before
// the detector was there, and nothing tells whose it was: one that it has got already is not got twice. That
// is not so of real-time signals, which are queued.
int Command::begin(int channel, const Signals& signals) {
  detector_ = GroupDetector();
  while (const auto signal = signals.next_before(-1, std::chrono::milliseconds(0))) heed(*signal, {});
  has_begun_ = true;
  static_cast<void>(send(channel, 0));  // the program may have ended
  for (pollfd told{channel, POLLIN, 0}; !ended_ && ::poll(&told, 1, 0) != 1;) {
    if (const auto signal = signals.next_before(channel, std::chrono::milliseconds(-1))) heed(*signal, {});
  }
  return receive(channel, MSG_DONTWAIT).value_or(0);
}

int Command::wait(const Signals& signals, const OtherEnded& other_ended) {
  while (!ended_) heed(signals.next(), other_ended);
  return *ended_;
}

void Command::heed(const signalfd_siginfo& signal, const OtherEnded& other_ended) {
  if (signal.ssi_signo == SIGCHLD)
    reap(other_ended);
  else if (!ended_)
    pass_on(signal);
}

// Several ends may be told of by one signal.
void Command::reap(const OtherEnded& other_ended) {
  for (int status = 0; !ended_ && ::waitpid(pid_, &status, WNOHANG | WUNTRACED) > 0;) {
    if (WIFSTOPPED(status)) {
      const WakeAgain wake(pid_);
      wakers_.push_back(wake.watcher());
      if (!goes_on()) stop_self();  // so that whoever waits for this process, such as a shell, learns of it
    } else {
      ended_ = status;
    }
  }
  const auto note = [&](pid_t pid, int status) {
    if (pid == pid_ && !ended_)
      ended_ = status;
    else if (!detector_.note_end(pid) && other_ended)
      other_ended(pid, status);
  };
  while (reap_next(note)) {
  }
}

// Whether the command has been continued since it was seen to have stopped.
bool Command::goes_on() const {
  siginfo_t continued{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &continued, WCONTINUED | WNOHANG | WNOWAIT) == 0 &&
         continued.si_pid == pid_;
}

// Whether a signal that this process has got has been sent to the command, too. One that has left the group
// does not get what is sent to it; what the terminal sends is not for it. A terminal that hangs up sends
// SIGHUP and SIGCONT to the leader of its session alone. A service manager sends to all processes of its
// unit, one after the other, or to this one alone (systemd.kill(5)).
bool Command::has_got(const signalfd_siginfo& signal) {
  const int number = static_cast<int>(signal.ssi_signo);
  const auto sender = static_cast<pid_t>(signal.ssi_pid);
  if (detector_.has_received(number)) return ::getpgid(pid_) == ::getpgrp() || is_service_manager(sender);
  if (signal.ssi_code == SI_KERNEL) {
    const bool is_hang_up = (number == SIGHUP || number == SIGCONT) && ::getsid(pid_) == ::getpid();
    return !is_hang_up;
  }
  return is_service_manager(sender) && detector_.receives_within(number, kManagerPatience);
}

void Command::pass_on(const signalfd_siginfo& signal) {
  if (static_cast<pid_t>(signal.ssi_pid) == ::getpid()) return;  // SIGPIPE of what is said here
  const bool has_got_it = has_got(signal);
  const bool is_of_a_waker = signal.ssi_signo == SIGCONT && note_continued(signal);
  if (!is_of_a_waker && (!has_begun_ || !has_got_it)) ::kill(pid_, static_cast<int>(signal.ssi_signo));
}

// Whether it was a waker that sent this SIGCONT. They are no more, and what they sent was pending with it.
bool Command::note_continued(const signalfd_siginfo& signal) {
  const std::vector<pid_t> wakers = std::exchange(wakers_, {});
  return std::find(wakers.begin(), wakers.end(), static_cast<pid_t>(signal.ssi_pid)) != wakers.end();
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
