#pragma once
#include "bench/broker.h"
#include "bench/empty_service.h"

namespace gpumem::bench {

/// What all benchmarks of a run share.
struct World {
  Broker broker;
  EmptyService empty_service;
  /// Median of grpc_empty_call in this run, in microseconds; 0: filtered out.
  double empty_call_us = 0;
};

void register_floors(World& world);
void register_grow_shrink(World& world);
void register_session_open(World& world);
void register_session_idle(World& world);
void register_kill_reclaim(World& world);
void register_neighbour(World& world);
void register_listing(World& world);
void register_simulated_extent(World& world);
void register_allocator_growth(World& world);
void register_pressed_allocator(World& world);
void register_through_c(World& world);

}  // namespace gpumem::bench
