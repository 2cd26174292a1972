#include "daemon/host/limits/socket_disposal.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <deque>
#include <system_error>
#include <thread>

#include "base/mutex.h"

namespace gpumem::host {
namespace {

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // Linux 6.16; the headers of Debian 12 are older
#endif

// More than the kernel queues on one socket.
constexpr int kMostQueued = 1 << 16;

bool is_stream(int socket) {
  int type = 0;
  socklen_t length = sizeof type;
  return ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

std::size_t length_of(ssize_t bytes) { return static_cast<std::size_t>(bytes); }

struct Queued {
  ssize_t bytes = 0;
  bool credentials = false;  ///< the message has credentials
  bool descriptors = false;
};

// With SO_PASSCRED each message has credentials, so an empty message differs from the end; the end of a
// stream has them, too. The buffer has room for credentials alone: for descriptors the kernel only sets
// MSG_CTRUNC.
Queued look_at_queue(int socket, std::span<std::byte> into) {
  iovec payload{into.data(), into.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred))> control;
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  if (count < 0) return {count, false, false};
  return {count, message.msg_controllen != 0, (message.msg_flags & MSG_CTRUNC) != 0};
}

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

bool refuse_descriptors(int listener) {
  const int off = 0;
  return ::setsockopt(listener, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off) == 0;
}

// Without a buffer for control messages the kernel only says that there are some.
Readable look_at(int socket, std::span<std::byte> into) {
  iovec payload{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  return {count, count >= 0 && (message.msg_flags & MSG_CTRUNC) != 0};
}

bool empty_queue(int socket) {
  ::shutdown(socket, SHUT_RDWR);  // from now on nothing is added to it
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  const bool stream = is_stream(socket);
  std::array<std::byte, 16384> piece;
  int resets = 0;
  for (int i = 0; i < kMostQueued; ++i) {
    const Queued next = look_at_queue(socket, piece);
    if (next.descriptors) return false;
    const bool message = next.bytes > 0 || (next.bytes == 0 && next.credentials && !stream);
    // A reset is reported once, before what the peer had sent.
    const bool reset = next.bytes < 0 && errno == ECONNRESET && ++resets < 2;
    if (!message && !reset) return true;
    if (message) static_cast<void>(::recv(socket, piece.data(), length_of(next.bytes), MSG_DONTWAIT));
  }
  return false;
}

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
