#include "client/cli/top/hosts.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <iostream>

#include "base/system/unique_fd.h"
#include "client/cli/commands/commands.h"
#include "client/cli/views/text.h"

extern char** environ;

namespace gpumem::cli::top {
namespace {

/// A run of `gpumem top --once` on one host.
class RemoteScreen {
 public:
  RemoteScreen(std::string host, std::size_t width) : host_(std::move(host)) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    output_ = UniqueFd(ends[0]);
    const UniqueFd input(ends[1]);
    start(input.get(), "COLUMNS=" + std::to_string(width));
  }

  /// The output of the run. `is_done`  whether it went well.   Blocks.
  std::string read(bool& is_done) {
    std::string text;
    std::array<char, 4096> part{};
    for (ssize_t count = 0; (count = ::read(output_.get(), part.data(), part.size())) != 0;) {
      if (count < 0 && errno != EINTR) break;
      if (count > 0) text.append(part.data(), static_cast<std::size_t>(count));
    }
    int status = 0;
    while (pid_ > 0 && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    is_done = pid_ > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return text;
  }
  const std::string& host() const { return host_; }

 private:
  void start(int output, const std::string& columns) {
    std::vector<std::string> words{"ssh",    "-n",
                                   "-o",     "BatchMode=yes",
                                   "-o",     "ConnectTimeout=5",
                                   "-o",     "ServerAliveInterval=2",
                                   "-o",     "ServerAliveCountMax=3",
                                   "--",     host_,
                                   "env",    columns,
                                   "gpumem", "top",
                                   "--once", "--plain"};
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    if (::posix_spawnp(&pid_, "ssh", &files, &attributes, pointers.data(), environ) != 0) pid_ = -1;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
  }

  const std::string host_;
  UniqueFd output_;
  pid_t pid_ = -1;
};

// False: a host has not answered.
bool show_all(const std::vector<std::string>& hosts, std::size_t width, bool clears) {
  std::vector<RemoteScreen> screens;
  screens.reserve(hosts.size());
  for (const std::string& host : hosts) screens.emplace_back(host, width);
  bool all_done = true;
  std::string text;
  for (RemoteScreen& screen : screens) {
    bool is_done = false;
    std::string shown = screen.read(is_done);
    std::erase(shown, '\r');  // of ssh's own messages
    text += "== " + screen.host() + " ==\n" + printable_lines(shown);
    if (!is_done) text += "(ssh, or gpumem there, has failed)\n";
    all_done = all_done && is_done;
  }
  if (clears) clear_screen();
  std::cout << text << std::flush;
  return all_done;
}

}  // namespace

std::string hosts_of(const std::string& text, std::vector<std::string>& hosts) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string host = text.substr(begin, end - begin);
    if (host.empty()) return "a host is empty";
    if (host.starts_with('-')) return "'" + host + "' is not a host";
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
    begin = end + 1;
  }
  return {};
}

int run_hosts(const std::vector<std::string>& hosts, std::size_t width, bool is_once) {
  constexpr std::chrono::seconds kPause{2};
  const Interrupt interrupt;
  bool all_done = show_all(hosts, width, !is_once);
  while (!is_once && std::cout && interrupt.wait(kPause)) all_done = show_all(hosts, width, true);
  return all_done || interrupt.happened() ? 0 : 1;
}

}  // namespace gpumem::cli::top
