#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

namespace gpumem {

/// One writer publishes a value of many words; readers copy it without ever blocking the writer.
/// The lock is the `sequence` word: odd while the writer is at work. Every word of the value is read and
/// written atomically, so there is no data race, only copies to throw away.
template <class Value>
concept SeqlockValue = std::is_trivially_copyable_v<Value> && sizeof(Value) % sizeof(std::uint64_t) == 0 &&
                       alignof(Value) == alignof(std::uint64_t);

/// Publishes the first `bytes` of `value` in `shared`; what
/// follows must never change. One writer at a time; it may take over from one that died half-way.
template <SeqlockValue Value>
void seqlock_write(std::uint64_t& sequence, Value& shared, const Value& value,
                   std::size_t bytes = sizeof(Value)) {
  std::atomic_ref<std::uint64_t> lock(sequence);
  const std::uint64_t writing = lock.load(std::memory_order_relaxed) | 1;
  lock.store(writing, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  auto* to = reinterpret_cast<std::uint64_t*>(&shared);
  const auto* from = reinterpret_cast<const std::uint64_t*>(&value);
  for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) {
    std::atomic_ref<std::uint64_t>(to[i]).store(from[i], std::memory_order_relaxed);
  }
  lock.store(writing + 1, std::memory_order_release);
}

/// Stores a consistent copy of `shared` in `copy`. False if the writer was at work in every one of the
/// attempts (a writer that died half-way leaves it so for ever: the reader must not hang).
template <SeqlockValue Value>
bool seqlock_read(const std::uint64_t& sequence, const Value& shared, Value& copy) {
  constexpr int kAttempts = 10'000;
  std::atomic_ref<std::uint64_t> lock(const_cast<std::uint64_t&>(sequence));
  auto* from = reinterpret_cast<std::uint64_t*>(const_cast<Value*>(&shared));
  auto* to = reinterpret_cast<std::uint64_t*>(&copy);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t before = lock.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    for (std::size_t i = 0; i < sizeof(Value) / sizeof(std::uint64_t); ++i) {
      to[i] = std::atomic_ref<std::uint64_t>(from[i]).load(std::memory_order_relaxed);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (lock.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

/// As above; nothing where that is false.
template <SeqlockValue Value>
std::optional<Value> seqlock_read(const std::uint64_t& sequence, const Value& shared) {
  std::optional<Value> copy(std::in_place);
  if (!seqlock_read(sequence, shared, *copy)) copy.reset();
  return copy;
}

}  // namespace gpumem
