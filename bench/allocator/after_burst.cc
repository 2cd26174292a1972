#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/allocator/measure.h"
#include "bench/allocator/replay.h"
#include "bench/allocator/traces/workloads.h"
#include "bench/must.h"
#include "bench/samples.h"
#include "bench/world.h"
#include "gpumem/allocator.h"

// Committed memory after a burst, with a real broker, which does not always have the extents that an
// allocator prefers (given_back.cc: with a memory that has). The program works a little between its calls, as
// programs do.

namespace gpumem::bench {
namespace {

constexpr Bytes kLimit = gibibytes(20);
constexpr int kTurns = 5;
constexpr int kCallsBetweenWork = 16;

/// In the shape that replay.h plays on.
class WorkingProgram {
 public:
  explicit WorkingProgram(Allocator& allocator) : allocator_(allocator) {}
  std::uint64_t allocate(Bytes bytes, std::uint32_t) { return must(allocator_.allocate(bytes), "allocate"); }
  void deallocate(std::uint64_t address, Bytes bytes, std::uint32_t) {
    must(allocator_.deallocate(address, bytes), "deallocate");
  }
  void pass() {
    if (++calls_ % kCallsBetweenWork == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  Allocator& allocator_;
  int calls_ = 0;
};

void after_burst(benchmark::State& state, World& world, AllocationTrace (*make)(std::uint64_t seed)) {
  const AllocationTrace trace = make(1);
  Session session = world.broker.connect();
  std::vector<double> over_live;
  for (auto _ : state) {
    world.broker.await_stock();
    Allocator allocator = must(session.open_allocator({.limit = kLimit}), "open an allocator");
    WorkingProgram program(allocator);
    Bytes live;
    const auto took = timed([&] { live = total(play(trace, program)); });
    must(allocator.trim(Allocator::kUnknownSize), "trim");
    const Bytes committed = must(allocator.statistics(), "statistics").committed;
    over_live.push_back(static_cast<double>(committed.minus(live).count));
    state.SetIterationTime(seconds(took));
  }
  state.counters["over_live"] = median(over_live);
  state.counters["least"] = *std::ranges::min_element(over_live);
  state.counters["most"] = *std::ranges::max_element(over_live);
}

}  // namespace

void register_after_burst(World& world) {
  const auto with = [&world](const char* name, AllocationTrace (*make)(std::uint64_t)) {
    benchmark::RegisterBenchmark(name, after_burst, std::ref(world), make)
        ->Iterations(kTurns)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  with("after_burst/burst", burst);
  with("after_burst/scattered_burst", scattered_burst);
}

}  // namespace gpumem::bench
