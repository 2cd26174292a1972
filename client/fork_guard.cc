#include "client/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <mutex>

namespace gpumem::client {

struct OwnFd::Node {
  int fd = -1;
  Node* previous = nullptr;
  Node* next = nullptr;
};

namespace {

// The forking thread holds the mutex across the fork. So the child finds the list consistent and, as a copy
// of the holder, may unlock it. Neither has a destructor, so both stay usable while the process exits.
struct Registry {
  std::mutex mutex;
  OwnFd::Node* first = nullptr;
  std::atomic<std::uint64_t> generation{0};
};

Registry& registry();

void before_fork() { registry().mutex.lock(); }
void in_parent() { registry().mutex.unlock(); }

// Runs in the child, where only calls that a signal handler may make are allowed.
void in_child() {
  Registry& own = registry();
  own.generation.fetch_add(1, std::memory_order_relaxed);
  for (OwnFd::Node* node = own.first; node != nullptr; node = node->next) {
    ::close(std::exchange(node->fd, -1));
  }
  own.first = nullptr;
  own.mutex.unlock();
}

Registry& registry() {
  static Registry* const kRegistry = new Registry;
  return *kRegistry;
}

Registry& watched_registry() {
  static const int kRegistered = ::pthread_atfork(before_fork, in_parent, in_child);
  (void)kRegistered;  // fails only without memory
  return registry();
}

}  // namespace

std::uint64_t process_generation() { return watched_registry().generation.load(std::memory_order_relaxed); }

Result<void> check_not_forked(std::uint64_t generation) {
  if (generation == process_generation()) return {};
  return Error{Code::kFailedPrecondition,
               "this process was forked from the one that opened the session; open a new one"};
}

NoFork::NoFork() { watched_registry().mutex.lock(); }
NoFork::~NoFork() { registry().mutex.unlock(); }

OwnFd::OwnFd(const NoFork&, UniqueFd fd) : node_(new Node{fd.release(), nullptr, registry().first}) {
  Registry& own = registry();
  if (own.first != nullptr) own.first->previous = node_.get();
  own.first = node_.get();
}

int OwnFd::get() const { return node_ ? node_->fd : -1; }

// Close it before fork() may continue, or a child would keep a copy that is on no list.
void OwnFd::Unlink::operator()(Node* node) const {
  const NoFork no_fork;
  if (node->fd >= 0) {
    if (node->next != nullptr) node->next->previous = node->previous;
    (node->previous != nullptr ? node->previous->next : registry().first) = node->next;
    ::close(node->fd);
  }
  delete node;
}

void replace_descriptor(const OwnFd& own, OwnFd other) {
  const NoFork no_fork;
  while (::dup3(other.get(), own.get(), O_CLOEXEC) < 0 && (errno == EINTR || errno == EBUSY)) {
  }
}

}  // namespace gpumem::client
