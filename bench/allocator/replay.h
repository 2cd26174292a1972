#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "bench/allocator/traces/trace.h"
#include "bench/must.h"

namespace gpumem::bench {

struct Replayed {
  Bytes peak_in_use;
  Bytes peak_committed;
  double committed_over_used() const {
    return static_cast<double>(peak_committed.count) / static_cast<double>(peak_in_use.count);
  }
};

/// A block that a trace has left; null if it was freed.
struct LeftBlock {
  std::uint64_t address = 0;
  Bytes bytes;
};

/// Plays `trace` on `allocator`, of the same shape as for replay(). Answers its blocks, by number.
template <class Allocator>
std::vector<LeftBlock> play(const AllocationTrace& trace, Allocator& allocator) {
  std::vector<LeftBlock> blocks(trace.blocks);
  for (const AllocatorCall& call : trace.calls) {
    LeftBlock& block = blocks[call.block];
    if (call.kind == AllocatorCall::Kind::kAllocate) {
      block = {allocator.allocate({call.bytes}, call.stream), {call.bytes}};
    } else {
      allocator.deallocate(block.address, {call.bytes}, call.stream);
      block = {};
    }
    allocator.pass();
  }
  return blocks;
}

inline Bytes total(const std::vector<LeftBlock>& blocks) {
  Bytes sum;
  for (const LeftBlock& block : blocks) sum += block.bytes;
  return sum;
}

/// Plays `trace` on `allocator`, then frees what it has left. `allocator` has allocate(Bytes, stream), zero
/// for out of memory, deallocate(address, Bytes, stream) and committed(); between calls it is told pass().
template <class Allocator>
Replayed replay(const AllocationTrace& trace, Allocator& allocator) {
  Replayed replayed;
  Bytes in_use;
  std::vector<std::uint64_t> addresses(trace.blocks);
  std::vector<std::pair<Bytes, std::uint32_t>> held(trace.blocks);
  for (const AllocatorCall& call : trace.calls) {
    const Bytes bytes{call.bytes};
    if (call.kind == AllocatorCall::Kind::kAllocate) {
      addresses[call.block] = allocator.allocate(bytes, call.stream);
      require(addresses[call.block] != 0, "replay", trace.name + ": out of memory");
      held[call.block] = {bytes, call.stream};
      in_use += bytes;
    } else {
      allocator.deallocate(addresses[call.block], bytes, call.stream);
      addresses[call.block] = 0;
      in_use -= bytes;
    }
    allocator.pass();
    replayed.peak_in_use = std::max(replayed.peak_in_use, in_use);
    replayed.peak_committed = std::max(replayed.peak_committed, allocator.committed());
  }
  for (std::uint32_t block = 0; block < trace.blocks; ++block)
    if (addresses[block] != 0) allocator.deallocate(addresses[block], held[block].first, held[block].second);
  return replayed;
}

/// The time of the calls of `trace` alone, without any measurement between them.
template <class Allocator>
std::chrono::nanoseconds time_replay(const AllocationTrace& trace, Allocator& allocator) {
  std::vector<std::uint64_t> addresses(trace.blocks);
  std::vector<std::pair<Bytes, std::uint32_t>> held(trace.blocks);
  const auto start = std::chrono::steady_clock::now();
  for (const AllocatorCall& call : trace.calls) {
    if (call.kind == AllocatorCall::Kind::kAllocate) {
      addresses[call.block] = allocator.allocate({call.bytes}, call.stream);
      require(addresses[call.block] != 0, "replay", "out of memory");
      held[call.block] = {{call.bytes}, call.stream};
    } else {
      allocator.deallocate(addresses[call.block], {call.bytes}, call.stream);
      addresses[call.block] = 0;
    }
  }
  const auto took = std::chrono::steady_clock::now() - start;
  for (std::uint32_t block = 0; block < trace.blocks; ++block)
    if (addresses[block] != 0) allocator.deallocate(addresses[block], held[block].first, held[block].second);
  return took;
}

}  // namespace gpumem::bench
