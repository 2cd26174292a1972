#include "client/cli/run/program/signals.h"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace gpumem::cli {
namespace {

std::optional<signalfd_siginfo> next_of(const UniqueFd& signals, int other, std::chrono::milliseconds time) {
  std::array<pollfd, 2> polled{{{signals.get(), POLLIN, 0}, {other, POLLIN, 0}}};
  ::poll(polled.data(), polled.size(), static_cast<int>(time.count()));
  signalfd_siginfo signal{};
  if (::read(signals.get(), &signal, sizeof signal) == sizeof signal) return signal;
  return std::nullopt;
}

using Clock = std::chrono::steady_clock;

bool can_be_read(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

}  // namespace

Signals::Signals() {
  sigset_t signals;
  ::sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) ::sigdelset(&signals, fault);
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
  struct sigaction told {
  };  // ignored, as it may be inherited, it would not tell of children, nor keep their status
  told.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &told, &child_before_);
  fd_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  ::sigemptyset(&ends_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction known {};
    if (::sigaction(signal, nullptr, &known) != 0 || known.sa_handler != SIG_IGN) ::sigaddset(&ends_, signal);
  }
  sigset_t own = ends_;
  ::sigaddset(&own, SIGTSTP);
  own_.reset(::signalfd(-1, &own, SFD_CLOEXEC | SFD_NONBLOCK));
}

Signals::~Signals() {
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

signalfd_siginfo Signals::next() const {
  for (;;) {
    if (const auto signal = next_before(-1, std::chrono::milliseconds(-1))) return *signal;
  }
}

std::optional<signalfd_siginfo> Signals::next_before(int other, std::chrono::milliseconds time) const {
  return next_of(fd_, other, time);
}

std::optional<signalfd_siginfo> Signals::next_for_itself_before(int other,
                                                                std::chrono::milliseconds time) const {
  return next_of(own_, other, time);
}

bool Signals::asks_to_end(const signalfd_siginfo& signal) const {
  return ::sigismember(&ends_, static_cast<int>(signal.ssi_signo)) == 1;
}

void stop_self() { ::kill(::getpid(), SIGSTOP); }

void die_by(int signal) {
  std::cout << std::flush;
  std::cerr << std::flush;
  ::prctl(PR_SET_DUMPABLE, 0);
  ::signal(signal, SIG_DFL);
  ::kill(::getpid(), signal);  // pending, if it is blocked
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::_exit(128 + signal);  // of signals that end nothing
}

bool await_answer(const UniqueFd& done, const Signals& signals, std::chrono::milliseconds patience) {
  for (const auto end = Clock::now() + patience; !can_be_read(done.get());) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return false;
    const auto signal = signals.next_for_itself_before(done.get(), left);
    if (!signal) continue;
    if (signals.asks_to_end(*signal)) die_by(static_cast<int>(signal->ssi_signo));
    if (signal->ssi_signo == SIGTSTP) stop_self();
  }
  return true;
}

}  // namespace gpumem::cli
