#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>

#include "bench/allocator/physical.h"

namespace gpumem::bench {

/// Pools of segments, by the rules of PyTorch's caching allocator ("CUDA semantics: memory management", and
/// its design notes) as it is configured by default: sizes in multiples of 512 bytes; up to 1 MiB out of
/// segments of 2 MiB; up to 10 MiB out of segments of 20 MiB; larger ones in a segment of their own, in
/// multiples of 2 MiB. Of a stream's free blocks the smallest that fits, split if 512 bytes (small) or more
/// than 1 MiB (large) are left. A block serves its own stream only. Out of memory: what is wholly free goes
/// back, and once more. Expandable: each stream has one segment for small and one for large blocks, which
/// grows at its end by multiples of 2 MiB and 20 MiB ("expandable_segments:True"). Here such segments never
/// shrink. Threads  any.
class Caching {
 public:
  enum class Segments { kFixed, kExpandable };
  explicit Caching(Bytes capacity, Segments segments = Segments::kFixed)
      : segments_(segments), memory_(capacity) {}

  /// Zero: out of memory.
  std::uint64_t allocate(Bytes bytes, std::uint32_t stream);
  void deallocate(std::uint64_t address, Bytes bytes, std::uint32_t stream);
  Bytes committed() const { return memory_.committed(); }

 private:
  struct Block {
    std::uint64_t address = 0, size = 0;
    std::uint32_t stream = 0;
    bool small = false;
    bool in_use = false;
    Block* previous = nullptr;  ///< neighbours in the same segment
    Block* next = nullptr;
  };
  struct Order {
    bool operator()(const Block* a, const Block* b) const {
      return std::tie(a->stream, a->size, a->address) < std::tie(b->stream, b->size, b->address);
    }
  };
  using Pool = std::set<Block*, Order>;

  Pool& pool_of(const Block& block) { return block.small ? small_ : large_; }
  Block* find(Pool& pool, std::uint64_t size, std::uint32_t stream);
  Block* new_segment(std::uint64_t size, std::uint32_t stream, bool small);
  Block* expanded(std::uint64_t size, std::uint32_t stream, bool small);
  Block* new_block(std::uint64_t at, std::uint64_t size, std::uint32_t stream, bool small);
  void release_free(Pool& pool);
  void split(Block& block, std::uint64_t size);
  void absorb(Block& into, Block* neighbour);

  Segments segments_;
  std::mutex mutex_;
  Physical memory_;
  std::map<std::pair<std::uint32_t, bool>, Block*> ends_;  ///< of the expandable segments: their last blocks
  Pool small_, large_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Block>> blocks_;  ///< by address
};

}  // namespace gpumem::bench
