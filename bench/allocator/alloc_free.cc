#include <array>
#include <type_traits>

#include "bench/allocator/allocators.h"
#include "bench/allocator/register.h"
#include "bench/allocator/suite.h"

// A block is allocated and freed again at once, by every thread for itself: what a program pays at least for
// each block. The stream is the default stream, or one of the thread's own.

namespace gpumem::bench {
namespace {

constexpr std::size_t kHeld = 8;

template <class Allocator>
double pair_ns(Allocator& allocator, Bytes bytes, std::size_t threads, std::size_t pairs) {
  const auto took = at_once(threads, [&allocator, bytes, pairs](std::size_t thread) {
    const auto stream =
        std::is_same_v<Allocator, GpumemOnStreams> ? static_cast<std::uint32_t>(thread) + 1 : 0U;
    std::array<std::uint64_t, kHeld> held;
    for (std::uint64_t& address : held) address = allocator.allocate(bytes, stream);
    for (std::size_t i = 0; i < pairs; ++i) {
      std::uint64_t address = allocator.allocate(bytes, stream);
      benchmark::DoNotOptimize(address);
      allocator.deallocate(address, bytes, stream);
    }
    for (const std::uint64_t address : held) allocator.deallocate(address, bytes, stream);
  });
  return static_cast<double>(took.count()) / static_cast<double>(pairs);
}

template <class Allocator, class Floor>
Compared compare_pairs(Bytes bytes, std::size_t threads, std::size_t pairs, std::size_t turns) {
  Allocator allocator;
  Floor floor;
  pair_ns(allocator, bytes, threads, pairs / 10);
  pair_ns(floor, bytes, threads, pairs / 10);
  return compare(
      turns, [&] { return pair_ns(allocator, bytes, threads, pairs); },
      [&] { return pair_ns(floor, bytes, threads, pairs); });
}

template <class Allocator>
void register_pairs(Bytes bytes, std::size_t threads, const SuiteOptions& options) {
  const std::string name = std::string("alloc_free/") + Allocator::kName +
                           "/size:" + std::to_string(bytes.count) + "/threads:" + std::to_string(threads);
  register_compared(name, "mimalloc", [=] {
    return compare_pairs<Allocator, Mimalloc>(bytes, threads, options.pairs(), options.turns());
  });
}

}  // namespace

void register_alloc_free(const SuiteOptions& options) {
  for (std::uint64_t size = 256; size <= 1 << 20; size *= 4) {
    for (const std::size_t threads : {1UL, 4UL}) {
      register_pairs<Gpumem>({size}, threads, options);
      register_pairs<Malloc>({size}, threads, options);
    }
    for (const std::size_t threads : {1UL, 2UL}) register_pairs<GpumemOnStreams>({size}, threads, options);
  }
}

}  // namespace gpumem::bench
