#include "client/cli/run/line/terminations.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/text/time_format.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/run/program/command.h"

namespace gpumem::cli {
namespace {

// A process that the broker has ended.
struct Termination {
  std::int64_t pid = 0;
  std::string words;
  bool was_killed = false;
};

bool is_of(const v1::Event& event, const EndedCommand& command) {
  return (command.job != 0 && event.job() == command.job) || event.pid() == command.pid;
}

Result<std::vector<Termination>> find_terminations(const EndedCommand& command) {
  auto monitor = Monitor::connect(command.runtime_folder);
  if (!monitor) return monitor.error();
  v1::WatchEventsRequest request;
  request.set_since(to_rfc3339(command.began, Precision::kMicroseconds));
  std::vector<Termination> found;
  const auto keep = [&](const v1::Event& event) {
    const bool kills = event.kind() == "killing";
    if ((!kills && event.kind() != "terminating") || !is_of(event, command)) return true;
    const auto known = std::ranges::find(found, event.pid(), &Termination::pid);
    if (known == found.end())
      found.push_back({event.pid(), event.words(), kills});
    else
      known->was_killed |= kills;
    return true;
  };
  if (auto watched = monitor->watch_events(request, keep, {}); !watched) return watched.error();
  return found;
}

void tell(const std::vector<Termination>& found, const EndedCommand& command, Progress& progress) {
  constexpr std::size_t kNamed = 3;
  for (std::size_t i = 0; i < std::min(found.size(), kNamed); ++i) {
    const Termination& one = found[i];
    const bool is_command = one.pid == command.pid || one.pid == ::getpid();
    progress.say("the broker ended " + (is_command ? "the command" : "pid " + std::to_string(one.pid)) +
                 " by " + (one.was_killed ? "SIGKILL: " : "SIGTERM: ") + one.words);
  }
  if (found.size() > kNamed)
    progress.say("the broker ended " + std::to_string(found.size() - kNamed) + " more processes");
  progress.say("`gpumem why " + command.tenant +
               "` says what you may hold, `gpumem events --no-follow` what came before");
}

}  // namespace

void tell_terminations(const EndedCommand& command, const Signals& signals, Progress& progress) {
  if (command.status == 0) return;
  AnswerInTime<std::vector<Termination>> asked([command] { return find_terminations(command); }, signals);
  if (asked.is_stuck()) std::_Exit(end_as(command.status));
  if (const auto& found = asked.answer(); found && !found->empty()) tell(*found, command, progress);
}

}  // namespace gpumem::cli
