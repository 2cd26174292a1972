#pragma once
#include <string>
#include <utility>
#include <vector>

#include "bench/allocator/traces/trace.h"

namespace gpumem::bench {

/// A block that a workload holds: its number, and how long it is.
struct TapeBlock {
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;
};
using TapeBlocks = std::vector<TapeBlock>;

/// Notes the calls of a workload as it is played through.
class Tape {
 public:
  TapeBlock allocate(std::uint64_t bytes, std::uint32_t stream = 0) {
    const TapeBlock block{trace_.blocks++, bytes};
    trace_.calls.push_back({AllocatorCall::Kind::kAllocate, stream, block.number, bytes});
    return block;
  }
  void free(const TapeBlock& block, std::uint32_t stream = 0) {
    trace_.calls.push_back({AllocatorCall::Kind::kFree, stream, block.number, block.bytes});
  }
  /// Memory of a computation that leaves nothing of it.
  void temporary(std::uint64_t bytes, std::uint32_t stream = 0) { free(allocate(bytes, stream), stream); }
  /// Last allocated, first freed, as backward passes go.
  void free_all(TapeBlocks& blocks, std::uint32_t stream = 0) {
    while (!blocks.empty()) {
      free(blocks.back(), stream);
      blocks.pop_back();
    }
  }

  AllocationTrace finish(std::string name) {
    trace_.name = std::move(name);
    return std::move(trace_);
  }

 private:
  AllocationTrace trace_;
};

}  // namespace gpumem::bench
