#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "bench/allocator/physical.h"

namespace gpumem::bench {

/// Best fit with coalescing, by the rules of TensorFlow's BFCAllocator (its header and documentation): sizes
/// in multiples of 256 bytes, 21 bins by powers of two, the smallest chunk that fits, split if it is twice as
/// large or 128 MiB too large, joined with its neighbours when freed; regions that double from 1 MiB on and
/// are kept. Knows one stream: where there are several, it is told nothing of them. Threads  any.
class Bfc {
 public:
  explicit Bfc(Bytes capacity) : memory_(capacity) {}

  /// Zero: out of memory.
  std::uint64_t allocate(Bytes bytes, std::uint32_t stream);
  void deallocate(std::uint64_t address, Bytes bytes, std::uint32_t stream);
  Bytes committed() const { return memory_.committed(); }

 private:
  using Handle = std::uint32_t;
  static constexpr Handle kNone = ~Handle{0};
  static constexpr std::uint64_t kUnit = 256;
  static constexpr std::size_t kBins = 21;
  static constexpr std::uint64_t kMostWaste = 128ULL << 20;

  struct Chunk {
    std::uint64_t address = 0, size = 0;
    Handle previous = kNone, next = kNone;  ///< neighbours in the same region
    bool in_use = false;
  };
  using Place = std::pair<std::uint64_t, std::uint64_t>;  ///< size, address

  static std::size_t bin_of(std::uint64_t size);
  Handle find(std::uint64_t size);
  bool extend(std::uint64_t size);
  void split(Handle handle, std::uint64_t size);
  Handle join(Handle first, Handle second);
  void put(Handle handle);
  void remove(Handle handle);
  Handle new_chunk(const Chunk& chunk);

  std::mutex mutex_;
  Physical memory_;
  std::uint64_t next_region_ = 1ULL << 20;
  std::vector<Chunk> chunks_;
  std::vector<Handle> unused_;
  std::array<std::set<std::pair<Place, Handle>>, kBins> bins_;  ///< free chunks
  std::unordered_map<std::uint64_t, Handle> by_address_;        ///< in use
};

}  // namespace gpumem::bench
