#include "client/process/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <mutex>

namespace gpumem::client {

struct OwnFd::Node {
  int fd = -1;
  std::atomic<std::uint64_t> file{0};  ///< the result of file_of() for it
  Node* previous = nullptr;
  Node* next = nullptr;
};

struct OwnAddresses::Node {
  char* base = nullptr;
  std::size_t size = 0;
  Node* previous = nullptr;
  Node* next = nullptr;
};

namespace {

// A number for the file that `fd` is of; 0 if it is of none. May be called by a signal handler.
std::uint64_t file_of(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return 0;
  return info.st_ino + (static_cast<std::uint64_t>(info.st_dev) << 40) + (info.st_mode & S_IFMT) + 1;
}

bool is_of_its_file(const OwnFd::Node& node) {
  return node.fd >= 0 && file_of(node.fd) == node.file.load(std::memory_order_relaxed);
}

// The forking thread holds the mutex across the fork. So the child finds the list consistent and, as a copy
// of the holder, may unlock it. Neither has a destructor, so both stay usable while the process exits. Nor is
// there anything to initialise at the first use: a fork might come meanwhile, and the child would wait for
// that.
struct Registry {
  std::mutex mutex;
  OwnFd::Node* first = nullptr;
  OwnAddresses::Node* first_addresses = nullptr;
  std::atomic<std::uint64_t> generation{0};
};

constinit Registry registry;

void before_fork() { registry.mutex.lock(); }
void in_parent() { registry.mutex.unlock(); }

// Runs in the child, where only calls that a signal handler may make are allowed.
void in_child() {
  registry.generation.fetch_add(1, std::memory_order_relaxed);
  for (OwnFd::Node* node = registry.first; node != nullptr; node = node->next) {
    if (is_of_its_file(*node)) ::close(node->fd);
    node->fd = -1;
  }
  registry.first = nullptr;
  for (const auto* node = registry.first_addresses; node != nullptr; node = node->next)
    set_aside(node->base, node->size);
  registry.mutex.unlock();
}

[[maybe_unused]] const int kRegistered =
    ::pthread_atfork(before_fork, in_parent, in_child);  // fails only without memory

}  // namespace

std::uint64_t process_generation() { return registry.generation.load(std::memory_order_relaxed); }

Result<void> check_not_forked(std::uint64_t generation) {
  if (generation == process_generation()) return {};
  return Error{Code::kFailedPrecondition,
               "this process was forked from the one that opened the session; open a new one"};
}

NoFork::NoFork() { registry.mutex.lock(); }
NoFork::~NoFork() { registry.mutex.unlock(); }

OwnFd::OwnFd(const NoFork&, UniqueFd fd) : node_(new Node) {
  node_->fd = fd.release();
  node_->file = file_of(node_->fd);
  node_->next = registry.first;
  if (registry.first != nullptr) registry.first->previous = node_.get();
  registry.first = node_.get();
}

int OwnFd::get() const { return node_ ? node_->fd : -1; }

bool OwnFd::is_intact() const {
  if (node_ == nullptr) return false;
  if (is_of_its_file(*node_)) return true;
  const NoFork no_fork;  // while it is replaced, the number and the file do not belong together
  return is_of_its_file(*node_);
}

// Close it before fork() may continue, or a child would keep a copy that is on no list.
void OwnFd::Unlink::operator()(Node* node) const {
  const NoFork no_fork;
  if (node->fd >= 0) {
    if (node->next != nullptr) node->next->previous = node->previous;
    (node->previous != nullptr ? node->previous->next : registry.first) = node->next;
    if (is_of_its_file(*node)) ::close(node->fd);
  }
  delete node;
}

char* set_aside(char* at, std::size_t size) {
  const int fixed = at != nullptr ? MAP_FIXED : 0;
  void* const set = ::mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  return set != MAP_FAILED ? static_cast<char*>(set) : nullptr;
}

Result<OwnAddresses> OwnAddresses::reserve(std::size_t size) {
  const NoFork no_fork;
  char* const base = set_aside(nullptr, size);
  if (base == nullptr) return errno_error(errno, "no addresses");
  auto* const node = new Node{.base = base, .size = size, .next = registry.first_addresses};
  if (node->next != nullptr) node->next->previous = node;
  registry.first_addresses = node;
  return OwnAddresses(node);
}

char* OwnAddresses::base() const { return node_ ? node_->base : nullptr; }
std::size_t OwnAddresses::size() const { return node_ ? node_->size : 0; }

void OwnAddresses::Unlink::operator()(Node* node) const {
  const NoFork no_fork;
  if (node->next != nullptr) node->next->previous = node->previous;
  (node->previous != nullptr ? node->previous->next : registry.first_addresses) = node->next;
  ::munmap(node->base, node->size);
  delete node;
}

bool replace_descriptor(const OwnFd& own, OwnFd other) {
  const NoFork no_fork;
  if (!is_of_its_file(*own.node_) || !is_of_its_file(*other.node_)) return false;
  while (::dup3(other.get(), own.get(), O_CLOEXEC) < 0 && (errno == EINTR || errno == EBUSY)) {
  }
  own.node_->file = other.node_->file.load();
  return true;
}

}  // namespace gpumem::client
