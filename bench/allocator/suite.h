#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/allocator/traces/trace.h"

namespace gpumem::bench {

/// How thoroughly to measure, and what.
struct SuiteOptions {
  bool small = false;                           ///< as a test: everything once, little of it
  std::vector<std::filesystem::path> recorded;  ///< traces to replay besides those that are made up

  std::size_t turns() const { return small ? 1 : 15; }
  std::size_t pairs() const { return small ? 1'000 : 200'000; }
};

void register_alloc_free(const SuiteOptions& options);
void register_batches(const SuiteOptions& options);
void register_given_back(const SuiteOptions& options);

/// The made-up traces and the recorded ones.
std::vector<AllocationTrace> traces(const SuiteOptions& options);
void register_replays(const std::vector<AllocationTrace>& traces, const SuiteOptions& options);

}  // namespace gpumem::bench
