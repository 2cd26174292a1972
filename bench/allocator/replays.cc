#include "bench/allocator/allocators.h"
#include "bench/allocator/register.h"
#include "bench/allocator/replay.h"
#include "bench/allocator/suite.h"
#include "bench/allocator/traces/workloads.h"

// Whole programs: the memory that an allocator takes compared with the memory in use, and the cost of its
// calls.

namespace gpumem::bench {
namespace {

constexpr std::uint64_t kSeed = 1;

/// Work on the device is done only after so many more allocations, as where a program runs ahead of it.
struct LaggingGpumem : Gpumem {
  static constexpr const char* kName = "gpumem_lag";
  LaggingGpumem() : Gpumem({.lag = 300}) {}
};

template <class Allocator>
double call_ns(const AllocationTrace& trace) {
  Allocator allocator;
  return static_cast<double>(time_replay(trace, allocator).count()) / static_cast<double>(trace.calls.size());
}

template <class Allocator>
void register_replay(const AllocationTrace& trace, const SuiteOptions& options) {
  const std::string name = std::string("replay/") + Allocator::kName + "/" + trace.name;
  auto* registered = benchmark::RegisterBenchmark(name.c_str(), [&trace, options](benchmark::State& state) {
    for (auto _ : state) {
      Allocator allocator;
      const Replayed replayed = replay(trace, allocator);
      const auto compared = compare(
          options.small ? 1 : 3, [&] { return call_ns<Allocator>(trace); },
          [&] { return call_ns<Mimalloc>(trace); });
      state.SetIterationTime(compared.ns * 1e-9 * static_cast<double>(trace.calls.size()));
      state.counters["committed_over_used"] = replayed.committed_over_used();
      state.counters["peak_in_use"] = static_cast<double>(replayed.peak_in_use.count);
      state.counters["peak_committed"] = static_cast<double>(replayed.peak_committed.count);
      state.counters["call_ns"] = compared.ns;
      state.counters["per_mimalloc"] = compared.ratio;
    }
  });
  run_once(registered, benchmark::kMillisecond);
}

}  // namespace

std::vector<AllocationTrace> traces(const SuiteOptions& options) {
  std::vector<AllocationTrace> all;
  for (const Workload& workload : workloads()) {
    const bool few_calls = workload.peak_most < gibibytes(16);
    if (!options.small || few_calls) all.push_back(workload.make(kSeed));
  }
  for (const std::filesystem::path& file : options.recorded)
    all.push_back(must(read_trace(file), "a recorded trace"));
  return all;
}

void register_replays(const std::vector<AllocationTrace>& traces, const SuiteOptions& options) {
  for (const AllocationTrace& trace : traces) {
    register_replay<Gpumem>(trace, options);
    register_replay<LaggingGpumem>(trace, options);
  }
}

}  // namespace gpumem::bench
