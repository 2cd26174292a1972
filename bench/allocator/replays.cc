#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/allocator/allocators.h"
#include "bench/allocator/register.h"
#include "bench/allocator/replay.h"
#include "bench/allocator/suite.h"
#include "bench/allocator/workloads.h"

// Whole programs: the memory that an allocator takes compared with the memory in use, and the cost of its
// calls.

namespace gpumem::bench {
namespace {

using nlohmann::json;

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

template <class Allocator>
json memory_of(const AllocationTrace& trace) {
  Allocator allocator;
  json points = json::array();
  for (const MemoryPoint& point : replay(trace, allocator).points)
    points.push_back({point.in_use.count, point.committed.count});
  return points;
}

template <class... Allocators>
struct Each {
  static void register_all(const AllocationTrace& trace, const SuiteOptions& options) {
    (register_replay<Allocators>(trace, options), ...);
  }
  static json memory(const AllocationTrace& trace) {
    json of_trace;
    ((of_trace[Allocators::kName] = memory_of<Allocators>(trace)), ...);
    return of_trace;
  }
};
using All = Each<Gpumem, LaggingGpumem, BfcReference, RmmReference, CachingReference, ExpandableReference>;

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
  for (const AllocationTrace& trace : traces) All::register_all(trace, options);
}

void write_memory(const std::vector<AllocationTrace>& traces, const std::filesystem::path& file) {
  json all;
  for (const AllocationTrace& trace : traces) all[trace.name] = All::memory(trace);
  std::ofstream stream(file);
  stream << all.dump() << "\n";
  require(static_cast<bool>(stream.flush()), "cannot write", file.string());
}

}  // namespace gpumem::bench
