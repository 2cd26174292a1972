#pragma once
#include <algorithm>
#include <atomic>

#include "gpumem/bytes.h"

namespace gpumem::client {

/// The limit of a device that slices and memory past the broker share. It is taken before memory is asked
/// for, and given back when the memory is gone.
/// Invariant  taken() <= limit.   Threads  any; no locks.
class Room {
 public:
  explicit Room(Bytes limit) : limit_(limit) {}

  /// Takes `most`, or what is left of it if that is at least `least`; else nothing.
  [[nodiscard]] Bytes take(Bytes least, Bytes most) {
    std::uint64_t now = taken_.load(std::memory_order_relaxed);
    Bytes part;
    do {
      part = std::min(most, limit_ - Bytes{now});
      if (part < least) return {};
    } while (!taken_.compare_exchange_weak(now, now + part.count, std::memory_order_relaxed));
    return part;
  }
  void give_back(Bytes bytes) { taken_.fetch_sub(bytes.count, std::memory_order_relaxed); }

  Bytes left() const { return limit_ - taken(); }
  Bytes taken() const { return {taken_.load(std::memory_order_relaxed)}; }

 private:
  const Bytes limit_;
  std::atomic<std::uint64_t> taken_{0};
};

}  // namespace gpumem::client
