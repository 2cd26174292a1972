#include "daemon/upgrade.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string_view>

#include "base/text/exec_words.h"
#include "daemon/host/state/folder_lock.h"
#include "daemon/run_program.h"

namespace gpumem {
namespace {

// A new broker creates its pools before it serves.
constexpr auto kPatience = std::chrono::minutes(10);
constexpr auto kCheckPatience = std::chrono::minutes(1);

std::string read_link(const std::string& path) {
  std::error_code ignored;
  std::string target = std::filesystem::read_symlink(path, ignored).string();
  constexpr std::string_view kDeleted = " (deleted)";  // the file has been replaced since
  if (target.ends_with(kDeleted)) target.resize(target.size() - kDeleted.size());
  return target;
}

bool is_same_file(const std::string& one, const std::string& other) {
  struct stat a {
  }, b{};
  return ::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

bool blocks_the_signal(const std::filesystem::path& thread) {
  std::ifstream status(thread / "status");
  constexpr std::string_view kBlocked = "SigBlk:";
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kBlocked)) continue;
    const auto mask = std::strtoull(line.c_str() + kBlocked.size(), nullptr, 16);
    return (mask >> (SIGUSR2 - 1) & 1) != 0;
  }
  return false;
}

// A broker that knows the signal blocks it in every thread but the one that waits for it; any other would die
// of it.
bool knows_the_signal(long pid) {
  std::error_code gone;
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", gone);
  return std::any_of(begin(threads), end(threads),
                     [](const auto& one) { return blocks_the_signal(one.path()); });
}

Result<void> check_broker(long pid) {
  const std::string its = read_link("/proc/" + std::to_string(pid) + "/exe");
  const std::string ours = read_link("/proc/self/exe");
  if (its.empty())
    return Error{Code::kPermissionDenied, "the broker, pid " + std::to_string(pid) +
                                              ", belongs to another user: run this as root or as that user"};
  if (!is_same_file(its, "/proc/self/exe"))
    return Error{Code::kFailedPrecondition, "the broker, pid " + std::to_string(pid) + ", runs " + its +
                                                ", and this is " + ours +
                                                ": put this in its place, and run " + its + " --upgrade"};
  if (!knows_the_signal(pid))
    return Error{
        Code::kFailedPrecondition,
        "the broker, pid " + std::to_string(pid) +
            ", is of a version that cannot be upgraded in place: restart it (systemctl restart gpumemd)"};
  return {};
}

// The last line that was reported since the lock was taken; the first line does not count.
std::string last_line_of(const std::filesystem::path& file) {
  std::ifstream lines(file);
  std::string first, last;
  std::getline(lines, first);
  for (std::string line; std::getline(lines, line);) last = line;
  return last;
}

Error ended() {
  return {Code::kUnavailable,
          "the broker has ended instead (its log says why: journalctl -u gpumemd). Clients keep their "
          "memory; the "
          "next broker takes over from the journal"};
}

// Another program can ignore its arguments and end as if all were well.
bool is_gpumemd(const std::string& program) {
  constexpr std::string_view kName = "gpumemd ";
  const UniqueFd output(::memfd_create("gpumemd-version", MFD_CLOEXEC));
  static_cast<void>(run_program(program, {"gpumemd", "--version"}, kCheckPatience, -1, output.get()));
  std::array<char, kName.size()> said{};
  return ::pread(output.get(), said.data(), said.size(), 0) == static_cast<ssize_t>(said.size()) &&
         std::string_view(said.data(), said.size()) == kName;
}

// Tells what the file says at last whenever it changes, until the broker serves, refuses or ends.
Result<std::string> await_service(const std::filesystem::path& lock, int changes, int process) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::array<pollfd, 2> events{{{changes, POLLIN, 0}, {process, POLLIN, 0}}};
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return Error{Code::kDeadlineExceeded,
                   "the broker does not serve yet; its log says why: journalctl -u gpumemd"};
    }
    if (::poll(events.data(), events.size(), static_cast<int>(left.count())) < 0 && errno != EINTR)
      return errno_error(errno, "cannot wait for the broker");
    if (events[1].revents != 0) return ended();
    if (events[0].revents == 0) continue;
    std::array<char, 4096> told{};
    static_cast<void>(::read(changes, told.data(), told.size()));
    std::string line = last_line_of(lock);
    if (line.starts_with(kServing)) return line.substr(std::string_view(kServing).size());
    if (!line.empty()) return Error{Code::kUnavailable, line};
  }
}

}  // namespace

Result<std::string> upgrade(const std::filesystem::path& runtime_folder) {
  const auto pid = host::holder_of_lock(runtime_folder);
  if (!pid || *pid <= 0) {
    return Error{Code::kNotFound, "no broker serves " + runtime_folder.string() +
                                      ": there is nothing to upgrade; start it (systemctl start gpumemd)"};
  }
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0)));
  if (!process.valid()) return errno_error(errno, "cannot watch the broker, pid " + std::to_string(*pid));
  if (auto right = check_broker(*pid); !right) return right.error();
  const std::filesystem::path lock = host::lock_file_of(runtime_folder);
  const UniqueFd changes(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (::inotify_add_watch(changes.get(), lock.c_str(), IN_MODIFY) < 0)
    return errno_error(errno, "cannot watch " + lock.string());
  if (::syscall(SYS_pidfd_send_signal, process.get(), SIGUSR2, nullptr, 0) != 0)
    return errno_error(errno, "cannot tell the broker, pid " + std::to_string(*pid));
  const auto version = await_service(lock, changes.get(), process.get());
  if (!version) return version.error();
  return "gpumemd " + *version + " serves " + runtime_folder.string() + " as pid " + std::to_string(*pid);
}

Successor::Successor(int argc, char** argv)
    : program_(read_link("/proc/self/exe")), arguments_(argv, argv + argc) {}

Result<void> Successor::check() const {
  if (::access(program_.c_str(), X_OK) != 0) return errno_error(errno, "cannot run " + program_);
  if (!is_gpumemd(program_))
    return Error{Code::kFailedPrecondition, program_ + " is not gpumemd; the old one goes on"};
  std::vector<std::string> arguments = arguments_;
  arguments.emplace_back("--check-config");
  const auto status = run_program(program_, std::move(arguments), kCheckPatience);
  if (!status && status.error().code != Code::kDeadlineExceeded) return status.error();
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return {};
  return Error{
      Code::kFailedPrecondition,
      "the new program does not accept the broker's configuration, or does not run (gpumemd --check-config "
      "says why); the old one goes on"};
}

Error Successor::become(const host::NamedDescriptors& descriptors) const {
  const auto passed = host::pass(descriptors);
  if (!passed) return passed.error();
  std::vector<std::string> variables{passed->second};
  for (char** one = environ; *one != nullptr; ++one) variables.emplace_back(*one);
  std::vector<std::string> arguments = arguments_;
  ::execve(program_.c_str(), exec_words(arguments).data(), exec_words(variables).data());
  return errno_error(errno, "cannot run " + program_);
}

}  // namespace gpumem
