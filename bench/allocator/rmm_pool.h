#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_set>

#include "bench/allocator/physical.h"

namespace gpumem::bench {

/// RMM's pool_memory_resource by its documentation: sizes in multiples of 256 bytes; for each stream a list
/// of free blocks by address, searched for the smallest that fits, joined with its neighbours when freed;
/// then the other streams' lists, as they are and then merged into this one; else the pool is doubled. Begins
/// empty, with no largest size. Threads  any.
class RmmPool {
 public:
  explicit RmmPool(Bytes capacity) : memory_(capacity) {}

  /// Zero: out of memory.
  std::uint64_t allocate(Bytes bytes, std::uint32_t stream);
  void deallocate(std::uint64_t address, Bytes bytes, std::uint32_t stream);
  Bytes committed() const { return memory_.committed(); }

 private:
  using FreeList = std::map<std::uint64_t, std::uint64_t>;  ///< address to size
  static constexpr std::uint64_t kUnit = 256;

  static std::uint64_t rounded(Bytes bytes) { return (bytes.count + kUnit - 1) / kUnit * kUnit; }
  /// The address of a block of `size` out of `list`, whose rest stays there; or zero.
  static std::uint64_t best_fit(FreeList& list, FreeList& rest_to, std::uint64_t size);
  void put(FreeList& list, std::uint64_t address, std::uint64_t size);
  std::uint64_t from_others(FreeList& mine, std::uint64_t size);
  std::uint64_t grow(FreeList& mine, std::uint64_t size);

  std::mutex mutex_;
  Physical memory_;
  std::map<std::uint32_t, FreeList> free_;   ///< by stream
  std::unordered_set<std::uint64_t> heads_;  ///< where what was taken begins: not joined with what is before
};

}  // namespace gpumem::bench
