#include "client/cli/run/pressure_hook.h"

#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <thread>
#include <vector>

#include "base/exec_words.h"
#include "client/cli/run/command.h"
#include "client/cli/views.h"

namespace gpumem::cli {
namespace {

constexpr std::chrono::milliseconds kLeast{1000};

std::string seconds_text(std::chrono::milliseconds span) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(span).count());
}

std::string json_of(const PressureAsked& asked) {
  Json json{{"asked_bytes", asked.bytes.count},
            {"deadline_seconds", std::chrono::ceil<std::chrono::seconds>(asked.within).count()},
            {"device", asked.device},
            {"name", asked.name}};
  if (asked.pid > 0) json["command_pid"] = asked.pid;
  return json_text(json);
}

std::vector<std::string> environment_of(const PressureAsked& asked) {
  Environment environment = own_environment();
  environment["GPUMEM_ASKED_BYTES"] = std::to_string(asked.bytes.count);
  environment["GPUMEM_DEADLINE_SECONDS"] = seconds_text(asked.within);
  environment["GPUMEM_DEVICE"] = asked.device;
  if (asked.pid > 0) environment["GPUMEM_COMMAND_PID"] = std::to_string(asked.pid);
  return assignments(environment);
}

// A command of the shell, with no signal blocked.
Result<pid_t> spawn_shell(std::string command, std::vector<std::string> environment) {
  posix_spawnattr_t attributes{};
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::string shell = "sh";
  std::string option = "-c";
  const std::array<char*, 4> words{shell.data(), option.data(), command.data(), nullptr};
  pid_t pid = 0;
  const int failed =
      ::posix_spawn(&pid, "/bin/sh", nullptr, &attributes, words.data(), exec_words(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) return errno_error(failed, "cannot run /bin/sh");
  return pid;
}

std::string ending_words(int status) {
  return WIFEXITED(status) ? "status " + std::to_string(WEXITSTATUS(status))
                           : "signal " + std::to_string(WTERMSIG(status));
}

}  // namespace

Result<PressureHook> PressureHook::parse(const std::string& text) {
  PressureHook hook;
  const bool is_url = text.starts_with("http://") || text.starts_with("https://");
  if (!is_url) {
    hook.command_ = text;
    return hook;
  }
  auto url = parse_url(text);
  if (!url) return url.error();
  hook.url_ = std::move(*url);
  return hook;
}

Result<void> PressureHook::ask(const PressureAsked& asked) {
  if (url_) return post_json(*url_, json_of(asked), std::max(asked.within, kLeast));
  return run(asked);
}

Result<void> PressureHook::run(const PressureAsked& asked) {
  std::unique_lock lock(mutex_);
  end_overdue();
  is_running_ = true;  // before the command can have ended
  ended_.clear();
  auto pid = spawn_shell(command_, environment_of(asked));
  is_running_ = pid.has_value();
  if (!pid) return pid.error();
  const bool in_time = changed_.wait_for(lock, std::max(asked.within, kLeast),
                                         [&] { return is_stopped_ || ended_.contains(*pid); });
  is_running_ = false;
  const auto ended = ended_.find(*pid);
  if (ended == ended_.end()) {
    ::kill(-*pid, SIGTERM);  // with what it has started
    overdue_ = *pid;
    if (!in_time) return Error{Code::kDeadlineExceeded, "the command of --on-pressure did not end in time"};
    await_overdue();
    return Error{Code::kCancelled, "the command of --on-pressure was ended"};
  }
  if (ended->second == 0) return {};
  return Error{Code::kAborted, "the command of --on-pressure has ended with " + ending_words(ended->second)};
}

void PressureHook::child_ended(pid_t pid, int status) {
  const std::scoped_lock lock(mutex_);
  if (pid == overdue_) end_overdue();  // its group: when it is waited for, the number may be another's
  if (!is_running_) return;
  ended_[pid] = status;
  changed_.notify_all();
}

void PressureHook::end_overdue() {
  if (overdue_ != 0) ::kill(-overdue_, SIGKILL);
  overdue_ = 0;
}

// Nobody else reaps any more. The group is ended before its first process is waited for.
void PressureHook::await_overdue() {
  const auto end = std::chrono::steady_clock::now() + kLeast;
  const pid_t pid = overdue_;
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ended.si_pid == 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  end_overdue();
  ::waitpid(pid, nullptr, WNOHANG);
}

void PressureHook::stop() {
  const std::scoped_lock lock(mutex_);
  is_stopped_ = true;
  end_overdue();
  changed_.notify_all();
}

}  // namespace gpumem::cli
