#include "base/system/large_stack.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "base/thread_guards.h"

namespace gpumem {

#ifdef GPUMEM_SANITIZED

void on_large_stack(void (*work)(void*), void* argument) { work(argument); }

#else

extern "C" void gpumem_call_on_stack(void* top, void (*work)(void*), void* argument);  // call_on_stack.S

namespace {

constexpr std::size_t kStackBytes = 1U << 20;

/// One stack is kept for the next call, because a new one takes several microseconds.
std::atomic<char*> kept_stack{nullptr};

class Stack {
 public:
  Stack() : memory_(kept_stack.exchange(nullptr)) {
    if (memory_ == nullptr) memory_ = create();
  }
  ~Stack() {
    char* none = nullptr;
    if (memory_ != nullptr && !kept_stack.compare_exchange_strong(none, memory_))
      ::munmap(memory_, kStackBytes);
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  /// Null: there is no memory for one.
  char* top() const { return memory_ == nullptr ? nullptr : memory_ + kStackBytes; }

 private:
  static char* create() {
    void* const memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    ::mprotect(memory, page, PROT_NONE);  // what grows past it faults there
    return static_cast<char*>(memory);
  }

  char* memory_;
};

}  // namespace

void on_large_stack(void (*work)(void*), void* argument) {
  thread_local bool is_there = false;
  if (is_there) return work(argument);
  const NotCancelled whole;
  const Stack stack;
  if (stack.top() == nullptr) return work(argument);
  struct There {
    There() { is_there = true; }
    ~There() { is_there = false; }
  } const there;
  gpumem_call_on_stack(stack.top(), work, argument);
}

#endif

}  // namespace gpumem
