#include "tests/support/child.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "tests/support/eventually.h"

namespace gpumem::test {
namespace {

// Variables that a developer's shell may have set and a test must not see.
const std::set<std::string> kUnset{"GPUMEM_RUNTIME_DIR", "GPUMEM_CRASH_POINT",  "GPUMEM_DRIVER_DIR",
                                   "GPUMEM_SIM_MACHINE", "GPUMEM_JOB",          "GPUMEM_LIMIT",
                                   "GPUMEM_WAIT",        "GPUMEM_NAME",         "GPUMEM_OPTIONAL",
                                   "GPUMEM_SHOW_DEVICE", "GPUMEM_REAL_LIBCUDA", "CUDA_VISIBLE_DEVICES",
                                   "NOTIFY_SOCKET",      "LISTEN_FDS",          "LISTEN_PID"};

std::vector<std::string> environment_of(const ChildOptions& options) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('='));
    const bool is_told =
        std::ranges::any_of(options.environment, [&](const auto& told) { return told.first == name; });
    if (!is_told && !kUnset.contains(name)) all.push_back(text);
  }
  for (const auto& [name, value] : options.environment) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Programs in the background of a shell, or under nohup, ignore some of these signals.
constexpr int kOftenIgnored[] = {SIGINT, SIGQUIT, SIGHUP};

// Between fork and exec: nothing but system calls. Other threads of the test may have held any lock.
[[noreturn]] void become(const ChildOptions& options, int input, char** arguments, char** environment) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options.own_group) ::setpgid(0, 0);
  for (const int number : kOftenIgnored) std::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  bool ready = ::dup2(input, STDIN_FILENO) >= 0;
  if (options.output >= 0) {
    ready = ready && ::dup2(options.output, STDOUT_FILENO) >= 0 && ::dup2(options.output, STDERR_FILENO) >= 0;
  }
  if (options.open_files) {
    const rlimit limit{*options.open_files, *options.open_files};
    ready = ready && ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  }
  if (options.user) {
    // The raw calls: libc's would try to reach threads that the child does not have.
    ready = ready && ::syscall(SYS_setgroups, 0, nullptr) == 0 &&
            ::syscall(SYS_setgid, options.user->gid) == 0 && ::syscall(SYS_setuid, options.user->uid) == 0;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // forgotten with the change of user
  }
  if (ready) ::execve(arguments[0], arguments, environment);
  ::_exit(127);
}

// The entries of a folder of /proc, or, of links, what they name.
std::vector<std::string> entries(const std::string& folder) {
  std::error_code gone;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator it(folder, gone), end; !gone && it != end; it.increment(gone)) {
    std::error_code no_link;
    found.push_back(std::filesystem::read_symlink(it->path(), no_link));
  }
  return found;
}

}  // namespace

Child::Child(const ChildOptions& options) {
  std::vector<std::string> arguments{options.program.string()};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = environment_of(options);
  const std::vector<char*> argument_pointers = pointers_to(arguments);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int input = options.input >= 0 ? options.input : nothing.get();
  sigset_t often_ignored, before;
  sigemptyset(&often_ignored);
  for (const int number : kOftenIgnored) sigaddset(&often_ignored, number);
  ::pthread_sigmask(SIG_BLOCK, &often_ignored, &before);  // none comes before the child ignores it no more
  pid_ = ::fork();
  if (pid_ == 0)
    become(options, input, const_cast<char**>(argument_pointers.data()),
           const_cast<char**>(environment_pointers.data()));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_GT(pid_, 0);
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  EXPECT_TRUE(pidfd_.valid());
}

Child::~Child() {
  if (!status_) kill();
}

bool Child::running() const {
  pollfd waiting{pidfd_.get(), POLLIN, 0};
  return !status_ && ::poll(&waiting, 1, 0) == 0;
}

void Child::signal(int number) { ::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0); }

int Child::wait() {
  if (status_) return *status_;
  pollfd waiting{pidfd_.get(), POLLIN, 0};
  // A whole program: sanitized, on a machine that is busy, it takes ten times what it takes alone.
  const auto patience = std::chrono::milliseconds(3 * kPatience).count();
  if (::poll(&waiting, 1, static_cast<int>(patience)) == 0) {
    ADD_FAILURE() << "process " << pid_ << " does not end";
    signal(SIGKILL);
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return *status_;
}

void Child::kill() {
  signal(SIGKILL);
  wait();
}

Outcome run(ChildOptions options) {
  const UniqueFd output(::memfd_create("output", MFD_CLOEXEC));
  options.output = output.get();
  Child child(options);
  Outcome outcome{child.wait(), {}};
  outcome.output.resize(static_cast<std::size_t>(::lseek(output.get(), 0, SEEK_END)));
  EXPECT_EQ(::pread(output.get(), outcome.output.data(), outcome.output.size(), 0),
            static_cast<ssize_t>(outcome.output.size()));
  return outcome;
}

std::vector<std::string> open_descriptors(pid_t pid) {
  std::vector<std::string> targets = entries("/proc/" + std::to_string(pid) + "/fd");
  std::erase_if(targets, [](const std::string& target) {
    return target.find("/dev/shm/gpumem-sim-") != std::string::npos;
  });
  return targets;
}

std::size_t threads(pid_t pid) { return entries("/proc/" + std::to_string(pid) + "/task").size(); }

}  // namespace gpumem::test
