#include "client/cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>

namespace gpumem::cli {

Interrupt::Interrupt() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
  signals_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  over_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  thread_ = std::thread([this] { await(); });
}

void Interrupt::await() {
  std::array<pollfd, 2> polled{{{signals_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}}};
  while (::poll(polled.data(), polled.size(), -1) < 0 && errno == EINTR) {
  }
  if (polled[0].revents != 0) stop_.request_stop();
}

Interrupt::~Interrupt() {
  ::eventfd_write(over_.get(), 1);
  thread_.join();
  signalfd_siginfo taken{};  // or it would end the program as soon as it is let through
  while (::read(signals_.get(), &taken, sizeof taken) > 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool Interrupt::wait(std::chrono::duration<double> time) const {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  return !never.wait_for(lock, token(), time, [this] { return happened(); });
}

}  // namespace gpumem::cli
