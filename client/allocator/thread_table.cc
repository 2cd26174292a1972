#include "client/allocator/thread_table.h"

#include <pthread.h>

#include <atomic>
#include <bitset>
#include <mutex>
#include <utility>

#include "client/allocator/thread_cache.h"

namespace gpumem::allocator {
namespace {

struct Numbers {
  std::mutex mutex;
  std::bitset<ThreadTable::kSize> taken{1};  // 0 means none
};

Numbers& numbers() {
  static auto* const kNumbers = new Numbers;  // used until the process ends
  return *kNumbers;
}

}  // namespace

constinit thread_local ThreadTable* ThreadTable::current_ = nullptr;

ThreadTable& ThreadTable::own() {
  static pthread_key_t key;
  static const int kPrepared = [] {
    ::pthread_atfork(nullptr, nullptr, [] { current_ = nullptr; });
    return ::pthread_key_create(&key, &ThreadTable::end);
  }();
  (void)kPrepared;  // without a key, other threads flush the caches of a thread that has ended
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
  ThreadTable& table = own();
  table.found_[number] = cache.get();
  table.caches_[number] = std::move(cache);
}

std::uint64_t ThreadTable::thread_number() { return own().number_; }

AllocatorNumber::AllocatorNumber() {
  Numbers& all = numbers();
  const std::scoped_lock lock(all.mutex);
  std::size_t free = 1;
  while (free < ThreadTable::kSize && all.taken[free]) ++free;
  if (free == ThreadTable::kSize) return;
  all.taken[free] = true;
  number_.store(free, std::memory_order_relaxed);
}

void AllocatorNumber::release() {
  Numbers& all = numbers();
  const std::size_t mine = number_.exchange(0, std::memory_order_relaxed);
  const std::scoped_lock lock(all.mutex);
  if (mine != 0) all.taken[mine] = false;
}

}  // namespace gpumem::allocator
