#pragma once
#include <benchmark/benchmark.h>

#include <functional>
#include <string>

#include "bench/allocator/measure.h"

namespace gpumem::bench {

/// A benchmark that is run once, and times itself.
inline void run_once(benchmark::internal::Benchmark* registered, benchmark::TimeUnit unit) {
  registered->Iterations(1)->UseManualTime()->Unit(unit);
}

/// A benchmark of what `measure` answers, held against `floor`.
inline void register_compared(const std::string& name, const std::string& floor,
                              std::function<Compared()> measure) {
  run_once(benchmark::RegisterBenchmark(name.c_str(),
                                        [=](benchmark::State& state) {
                                          for (auto _ : state) {
                                            const Compared compared = measure();
                                            state.SetIterationTime(compared.ns * 1e-9);
                                            state.counters["pair_ns"] = compared.ns;
                                            state.counters[floor + "_ns"] = compared.floor_ns;
                                            state.counters["per_" + floor] = compared.ratio;
                                          }
                                        }),
           benchmark::kNanosecond);
}

}  // namespace gpumem::bench
