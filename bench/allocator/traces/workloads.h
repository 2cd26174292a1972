#pragma once
#include <span>

#include "bench/allocator/traces/trace.h"

namespace gpumem::bench {

/// A trace that is made up after a published workload. README.md names the sources of the shapes.
struct Workload {
  const char* name;
  const char* words;  ///< for people
  Bytes peak_least;   ///< of memory in use at once
  Bytes peak_most;
  AllocationTrace (*make)(std::uint64_t seed);  ///< equal seeds give equal traces
};

std::span<const Workload> workloads();

AllocationTrace transformer_training(std::uint64_t seed);
AllocationTrace transformer_tuning(std::uint64_t seed);
AllocationTrace convolution_training(std::uint64_t seed);
AllocationTrace key_value_serving(std::uint64_t seed);
AllocationTrace mixed_batches(std::uint64_t seed);
AllocationTrace small_recurrent(std::uint64_t seed);
/// A burst whose blocks are all freed; only blocks from before it stay.
AllocationTrace burst(std::uint64_t seed);
/// A burst after which random blocks of its height stay, at any address. Not among workloads().
AllocationTrace scattered_burst(std::uint64_t seed);

}  // namespace gpumem::bench
