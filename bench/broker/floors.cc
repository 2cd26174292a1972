#include <benchmark/benchmark.h>

#include "bench/broker/echo.h"
#include "bench/must.h"
#include "bench/samples.h"
#include "bench/world.h"

// Lower bounds for the time of a call, and an empty call through all of the broker.

namespace gpumem::bench {
namespace {

void socket_round_trip(benchmark::State& state, World& world) {
  const Echo echo;
  Samples samples;
  for (auto _ : state) samples.add(echo.round_trip());
  world.round_trip_us = samples.median_us();
  state.counters["median_us"] = samples.median_us();
}

void grpc_empty_call(benchmark::State& state, World& world) {
  Samples samples;
  for (auto _ : state) samples.add(timed([&] { world.empty_service.call(); }));
  world.empty_call_us = samples.median_us();
  state.counters["median_us"] = samples.median_us();
}

void broker_ping(benchmark::State& state, World& world) {
  Session session = world.broker.connect();
  must(session.ping(), "ping");
  Samples samples;
  for (auto _ : state) samples.add(timed([&] { must(session.ping(), "ping"); }));
  state.counters["median_us"] = samples.median_us();
  add_ratios(state, "", samples.median_us(), world);
}

}  // namespace

void register_floors(World& world) {
  benchmark::RegisterBenchmark("socket_round_trip", socket_round_trip, std::ref(world))
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("grpc_empty_call", grpc_empty_call, std::ref(world))
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("broker_ping", broker_ping, std::ref(world))
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
