#include "client/allocator/thread_table.h"

#include <utility>

#include "client/allocator/thread_cache.h"

namespace gpumem::allocator {
namespace {

/// Whether an allocator has the number. Without a lock, which a forked child might find locked for ever.
constinit std::array<std::atomic<bool>, ThreadTable::kSize> taken{};

}  // namespace

constinit thread_local ThreadTable* ThreadTable::current_ = nullptr;

pthread_key_t ThreadTable::prepare() {
  static pthread_key_t key;
  static const int kPrepared = [] {
    ::pthread_atfork(nullptr, nullptr, [] { current_ = nullptr; });
    return ::pthread_key_create(&key, &ThreadTable::end);
  }();
  (void)kPrepared;  // without a key, other threads flush the caches of a thread that has ended
  return key;
}

ThreadTable& ThreadTable::own() {
  const pthread_key_t key = prepare();
  if (current_ == nullptr) {
    static std::atomic<std::uint64_t> next{1};
    current_ = new ThreadTable;
    current_->number_ = next.fetch_add(1);
    ::pthread_setspecific(key, current_);
  }
  return *current_;
}

ThreadTable& ThreadTable::of_ending_threads() {
  static auto* const kEnding = new ThreadTable;  // used until the process ends
  return *kEnding;
}

bool ThreadTable::is_ending() { return current_ == &of_ending_threads(); }

// Runs while the thread ends. The thread may still free blocks after this, without a cache.
void ThreadTable::end(void* table) {
  auto* own = static_cast<ThreadTable*>(table);
  if (own != current_) return;  // of the process that this one was forked from
  for (auto& cache : own->caches_) {
    if (cache) cache->retire();
  }
  current_ = &of_ending_threads();
  delete own;
}

void ThreadTable::set(std::size_t number, std::shared_ptr<ThreadCache> cache) {
  own().caches_[number] = std::move(cache);
}

std::uint64_t ThreadTable::thread_number() { return own().number_; }

AllocatorNumber::AllocatorNumber() {
  for (std::size_t free = 1; free < ThreadTable::kSize; ++free) {  // 0 means none
    if (taken[free].exchange(true, std::memory_order_acq_rel)) continue;
    number_.store(free, std::memory_order_relaxed);
    return;
  }
}

void AllocatorNumber::release() {
  const std::size_t mine = number_.exchange(0, std::memory_order_relaxed);
  if (mine != 0) taken[mine].store(false, std::memory_order_release);
}

}  // namespace gpumem::allocator
