#include <array>
#include <atomic>
#include <numeric>

#include "bench/allocator/allocators.h"
#include "bench/allocator/register.h"
#include "bench/allocator/suite.h"
#include "bench/allocator/traces/dice.h"

// Blocks that are held for a while: many at once, freed in another order; allocated by one thread and freed
// by another.

namespace gpumem::bench {
namespace {

constexpr std::size_t kBatch = 64;
using Batch = std::array<std::uint64_t, kBatch>;

Batch other_order() {
  Batch order;
  std::iota(order.begin(), order.end(), 0);
  Dice dice(7);
  for (std::size_t i = kBatch; i > 1; --i) std::swap(order[i - 1], order[dice.below(i)]);
  return order;
}

template <class Allocator>
double batch_ns(Allocator& allocator, Bytes bytes, std::size_t blocks) {
  static const Batch order = other_order();
  const auto took = at_once(1, [&](std::size_t) {
    Batch held;
    for (std::size_t i = 0; i < blocks; i += kBatch) {
      for (std::uint64_t& address : held) address = allocator.allocate(bytes, 0);
      for (const std::uint64_t place : order) allocator.deallocate(held[place], bytes, 0);
    }
  });
  return static_cast<double>(took.count()) / static_cast<double>(blocks);
}

// One thread allocates, the other frees: a ring between them.
template <class Allocator>
double handover_ns(Allocator& allocator, Bytes bytes, std::size_t blocks) {
  constexpr std::size_t kRing = 1024;
  std::vector<std::uint64_t> ring(kRing);
  alignas(64) std::atomic<std::size_t> made = 0;
  alignas(64) std::atomic<std::size_t> taken = 0;
  const auto start = std::chrono::steady_clock::now();
  std::jthread consumer([&] {
    for (std::size_t i = 0; i < blocks; ++i) {
      while (made.load(std::memory_order_acquire) == i) std::this_thread::yield();
      allocator.deallocate(ring[i % kRing], bytes, 0);
      taken.store(i + 1, std::memory_order_release);
    }
  });
  for (std::size_t i = 0; i < blocks; ++i) {
    while (i - taken.load(std::memory_order_acquire) == kRing) std::this_thread::yield();
    ring[i % kRing] = allocator.allocate(bytes, 0);
    made.store(i + 1, std::memory_order_release);
  }
  consumer.join();
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(took.count()) / static_cast<double>(blocks);
}

template <class Allocator>
using Measure = double (*)(Allocator& allocator, Bytes bytes, std::size_t blocks);

template <class Allocator>
void register_one(const char* what, Measure<Allocator> one, Measure<Mimalloc> floor, Bytes bytes,
                  const SuiteOptions& options) {
  const std::string name =
      std::string(what) + "/" + Allocator::kName + "/size:" + std::to_string(bytes.count);
  register_compared(name, "mimalloc", [=] {
    const std::size_t blocks = options.pairs() / kBatch * kBatch;
    Allocator allocator;
    Mimalloc mimalloc;
    one(allocator, bytes, blocks / 10);
    floor(mimalloc, bytes, blocks / 10);
    return compare(
        options.turns(), [&] { return one(allocator, bytes, blocks); },
        [&] { return floor(mimalloc, bytes, blocks); });
  });
}

template <class Allocator>
void register_both(const SuiteOptions& options) {
  for (const std::uint64_t size : {256ULL, 4096ULL, 65'536ULL, 1'048'576ULL}) {
    register_one<Allocator>("alloc_batch", batch_ns<Allocator>, batch_ns<Mimalloc>, {size}, options);
    register_one<Allocator>("handover", handover_ns<Allocator>, handover_ns<Mimalloc>, {size}, options);
  }
}

}  // namespace

void register_batches(const SuiteOptions& options) {
  register_both<Gpumem>(options);
  register_both<Malloc>(options);
}

}  // namespace gpumem::bench
