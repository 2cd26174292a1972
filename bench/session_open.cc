#include <benchmark/benchmark.h>

#include "bench/must.h"
#include "bench/samples.h"
#include "bench/world.h"

// From connect to the broker's welcome, and goodbye; with a call in between and without.

namespace gpumem::bench {
namespace {

void session_open(benchmark::State& state, World& world, bool calls) {
  Samples samples;
  for (auto _ : state) {
    samples.add(timed([&] {
      Session session = world.broker.connect();
      if (calls) must(session.ping(), "ping");
    }));
  }
  state.counters["median_us"] = samples.median_us();
  state.counters["per_second"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  world.broker.await_sessions(0);
}

}  // namespace

void register_session_open(World& world) {
  benchmark::RegisterBenchmark("session_open", session_open, std::ref(world), false)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("session_open/first_call", session_open, std::ref(world), true)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
