#include "daemon/host/socket_disposal.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <deque>
#include <system_error>
#include <thread>

#include "base/mutex.h"
#include "daemon/host/foreign_descriptors.h"

namespace gpumem::host {
namespace {

// A signal that a thread takes ends its wait for a lingering socket; it has to have a handler for that.
int interrupting_signal() {
  static const int kSignal = [] {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGRTMIN, &action, nullptr);
    return SIGRTMIN;
  }();
  return kSignal;
}

/// Sends the interrupting signal to the calling thread every millisecond, as long as it lives.
class Interrupter {
 public:
  Interrupter() {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = interrupting_signal();
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    if (::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
    created_ = true;
    constexpr timespec kMillisecond{0, 1'000'000};
    const itimerspec each{kMillisecond, kMillisecond};
    ::timer_settime(timer_, 0, &each, nullptr);
  }
  ~Interrupter() {
    if (created_) ::timer_delete(timer_);
  }
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;

 private:
  timer_t timer_{};
  bool created_ = false;
};

// Takes no signal but the interrupting one: main waits for the others.
void block_other_signals() {
  sigset_t blocked;
  sigfillset(&blocked);
  sigdelset(&blocked, interrupting_signal());
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

}  // namespace

struct SocketDisposal::State {
  void work();

  Mutex mutex;
  Condition wake;
  std::deque<UniqueFd> queue GPUMEM_GUARDED_BY(mutex);
  std::size_t threads GPUMEM_GUARDED_BY(mutex) = 0;
  std::size_t idle GPUMEM_GUARDED_BY(mutex) = 0;
  bool stopping GPUMEM_GUARDED_BY(mutex) = false;
};

void SocketDisposal::State::work() {
  block_other_signals();
  for (;;) {
    UniqueFd socket;
    {
      const MutexLock lock(mutex);
      ++idle;
      while (queue.empty() && !stopping) wake.wait(mutex);
      --idle;
      if (stopping) return;
      socket = std::move(queue.front());
      queue.pop_front();
    }
    const Interrupter interrupter;
    socket.reset();
  }
}

SocketDisposal::SocketDisposal(bool foreign_descriptors)
    : foreign_descriptors_(foreign_descriptors), state_(std::make_shared<State>()) {
  interrupting_signal();
}

SocketDisposal::~SocketDisposal() {
  const MutexLock lock(state_->mutex);
  state_->stopping = true;
  for (UniqueFd& socket : state_->queue) static_cast<void>(socket.release());
  state_->wake.notify_all();
}

void SocketDisposal::close(UniqueFd socket) {
  if (!foreign_descriptors_ || !socket.valid() || empty_queue(socket.get())) return;
  enqueue(std::move(socket));
}

void SocketDisposal::close_listener(UniqueFd socket) {
  if (!foreign_descriptors_ || !socket.valid()) return;
  ::shutdown(socket.get(), SHUT_RDWR);
  enqueue(std::move(socket));
}

void SocketDisposal::enqueue(UniqueFd socket) {
  const MutexLock lock(state_->mutex);
  state_->queue.push_back(std::move(socket));
  if (state_->idle < state_->queue.size() && state_->threads < kThreads) {
    try {
      std::thread([state = state_] { state->work(); }).detach();
      ++state_->threads;
    } catch (const std::system_error&) {
      // No thread to be had now: those that there are, or the next to be disposed of, see to it.
    }
  }
  state_->wake.notify_one();
}

bool SocketDisposal::has_room() const {
  const MutexLock lock(state_->mutex);
  return state_->queue.size() < kMostQueued;
}

}  // namespace gpumem::host
