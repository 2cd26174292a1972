#include "base/large_stack.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <utility>

#include "base/thread_guards.h"

namespace gpumem {

#ifdef GPUMEM_SANITIZED

void on_large_stack(void (*work)(void*), void* argument) { work(argument); }

#else

namespace {

constexpr std::size_t kStackBytes = 1U << 20;

/// One stack is kept for the next call, because a new one takes several microseconds.
std::atomic<void*> kept_stack{nullptr};

/// Null: there is no memory for one.
[[gnu::noinline]] void* take_stack() {  // its variables may not be the caller's, which comes back twice
  if (void* const kept = kept_stack.exchange(nullptr)) return kept;
  void* const memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  ::mprotect(memory, page, PROT_NONE);  // what grows past it faults there
  return memory;
}

void give_back_stack(void* memory) {
  void* none = nullptr;
  if (!kept_stack.compare_exchange_strong(none, memory)) ::munmap(memory, kStackBytes);
}

/// At the stack's upper end: the caller's stack may have no room for it either.
struct Switch {
  void (*work)(void*);
  void* argument;
  std::exception_ptr thrown{};
  ucontext_t back{};
  ucontext_t there{};
};

/// The halves of a Switch's address, because makecontext(3) passes integers.
void enter(unsigned high, unsigned low) {
  auto& own = *reinterpret_cast<Switch*>(std::uintptr_t{high} << 32 | low);
  try {
    own.work(own.argument);
  } catch (...) {
    own.thrown = std::current_exception();
  }
}

}  // namespace

void on_large_stack(void (*work)(void*), void* argument) {
  thread_local bool is_there = false;
  if (is_there) return work(argument);
  const NotCancelled whole;
  void* const memory = take_stack();
  if (memory == nullptr) return work(argument);
  constexpr std::size_t kRoom = (kStackBytes - sizeof(Switch)) / 64 * 64;
  auto& own = *new (static_cast<char*>(memory) + kRoom) Switch{work, argument};
  ::getcontext(&own.there);
  own.there.uc_stack.ss_sp = memory;
  own.there.uc_stack.ss_size = kRoom;
  own.there.uc_link = &own.back;
  const auto address = reinterpret_cast<std::uintptr_t>(&own);
  ::makecontext(&own.there, reinterpret_cast<void (*)()>(&enter), 2, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address));
  is_there = true;
  ::swapcontext(&own.back, &own.there);
  is_there = false;
  const std::exception_ptr thrown = std::move(own.thrown);
  own.~Switch();
  give_back_stack(memory);
  if (thrown) std::rethrow_exception(thrown);
}

#endif

}  // namespace gpumem
