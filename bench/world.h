#pragma once
#include <benchmark/benchmark.h>

#include <string>

#include "bench/broker/broker.h"
#include "bench/broker/empty_service.h"

namespace gpumem::bench {

/// What all benchmarks of a run share.
struct World {
  Broker broker;
  EmptyService empty_service;
  /// Medians of the floors in this run, in microseconds; 0: filtered out.
  double round_trip_us = 0;
  double empty_call_us = 0;
};

/// Counters `per_call` and `per_round_trip`, with a prefix: what `us` is, held against the floors of this
/// run.
inline void add_ratios(benchmark::State& state, const std::string& prefix, double us, const World& world) {
  if (world.empty_call_us > 0) state.counters[prefix + "per_call"] = us / world.empty_call_us;
  if (world.round_trip_us > 0) state.counters[prefix + "per_round_trip"] = us / world.round_trip_us;
}

void register_floors(World& world);
void register_grow_shrink(World& world);
void register_stream_growth(World& world);
void register_session_open(World& world);
void register_session_idle(World& world);
void register_kill_reclaim(World& world);
void register_neighbour(World& world);
void register_listing(World& world);
void register_simulated_extent(World& world);
void register_region_unmap(World& world);
void register_allocator_growth(World& world);
void register_pressed_allocator(World& world);
void register_after_burst(World& world);
void register_through_c(World& world);

}  // namespace gpumem::bench
