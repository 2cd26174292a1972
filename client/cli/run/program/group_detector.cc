#include "client/cli/run/program/group_detector.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace gpumem::cli {
namespace {

// After a fork of threads: system calls alone.
[[noreturn]] void watch(pid_t parent) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  ::syscall(SYS_close_range, 0U, ~0U, 0U);  // nobody waits for the end of a pipe that is open here
  for (;;) ::pause();
}

// The signals that are pending for the process, the first in the lowest bit.
std::uint64_t pending_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  constexpr std::string_view kName = "ShdPnd:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kName)) return std::stoull(line.substr(kName.size()), nullptr, 16);
  }
  return 0;
}

std::uint64_t bit_of(int signal) { return std::uint64_t{1} << (signal - 1); }

// A pending stop signal cancels a pending SIGCONT, and the other way round: signal(7).
std::uint64_t cancelled_by(int signal) {
  const std::uint64_t stops = bit_of(SIGTSTP) | bit_of(SIGTTIN) | bit_of(SIGTTOU);
  if (signal == SIGCONT) return stops;
  return (stops & bit_of(signal)) != 0 ? bit_of(SIGCONT) : 0;
}

// The kernel signals a whole group under its lock of the list of processes. This takes that lock, too, and
// changes nothing: afterwards a signal that has reached one process of the group has reached all.
void await_group_signal() { static_cast<void>(::setpgid(0, ::getpgrp())); }

}  // namespace

GroupDetector::GroupDetector() : pid_(-1) {
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) watch(parent);
}

GroupDetector::~GroupDetector() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

// Pending signals of a detector cannot be cleared, so a new detector replaces it. The new one exists before
// the last look at the old one, so that no signal is missed.
bool GroupDetector::has_received(int signal) {
  if (pid_ <= 0) return false;
  await_group_signal();
  const std::uint64_t asked = bit_of(signal), opposed = cancelled_by(signal);
  if (((carried_ | pending_of(pid_)) & (asked | opposed)) == 0) return false;
  GroupDetector next;
  const std::uint64_t received = carried_ | pending_of(pid_);
  await_group_signal();
  const std::uint64_t own = pending_of(::getpid());
  // The signal has taken away from this process whatever was sent before it and is opposed to it.
  const std::uint64_t later = opposed & own;
  // Where it has come again meanwhile, what the group has pending counts for both: it is there once only.
  next.carried_ = received & (~asked | own) & (~opposed | later);
  *this = std::move(next);
  return (received & asked) != 0 || later != 0;
}

bool GroupDetector::receives_within(int signal, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  bool has = has_received(signal);
  while (!has && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    has = has_received(signal);
  }
  return has;
}

bool GroupDetector::note_end(pid_t pid) {
  if (pid != pid_) return false;
  pid_ = -1;
  return true;
}

}  // namespace gpumem::cli
