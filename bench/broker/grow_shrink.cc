#include <benchmark/benchmark.h>

#include <optional>

#include "bench/must.h"
#include "bench/samples.h"
#include "bench/world.h"

// The time that a program waits when it takes memory and gives it back: the library's whole way, from the
// call to memory that the device can use. The extents are warm: nothing is created while it waits.

namespace gpumem::bench {
namespace {

constexpr Bytes kLimit = gibibytes(1);

struct Measured {
  Samples grow;
  Samples shrink;
  Samples empty_call;  // made next to each of them, from the same rest
};

void measure(benchmark::State& state, World& world, Slice& slice, Bytes bytes, Measured& measured) {
  for (auto _ : state) {
    world.broker.await_stock();
    measured.empty_call.add(timed([&] { world.empty_service.call(); }));
    const auto grow = timed([&] { must(slice.grow(bytes), "grow"); });
    const auto shrink = timed([&] { must(slice.shrink({}), "shrink"); });
    measured.grow.add(grow);
    measured.shrink.add(shrink);
    state.SetIterationTime(seconds(grow + shrink));
  }
}

void grow_shrink(benchmark::State& state, World& world, Bytes bytes) {
  Session session = world.broker.connect();
  Slice slice = must(session.open_slice({.limit = kLimit}), "open a slice");
  Measured measured;
  measure(state, world, slice, bytes, measured);
  const double grow = measured.grow.median_us();
  state.counters["grow_us"] = grow;
  state.counters["shrink_us"] = measured.shrink.median_us();
  add_ratios(state, "shrink_", measured.shrink.median_us(), world);
  state.counters["grow_p99_us"] = measured.grow.quantile_us(0.99);
  add_ratios(state, "grow_", grow, world);
  state.counters["grow_per_near_call"] = grow / measured.empty_call.median_us();
}

// The first memory of a program that has just started: a session, a slice, and 2 MiB of memory mapped.
void first_memory(benchmark::State& state, World& world) {
  Samples samples;
  Samples empty_call;
  for (auto _ : state) {
    world.broker.await_stock();
    empty_call.add(timed([&] { world.empty_service.call(); }));
    std::optional<Session> session;  // what ends with them does not count
    std::optional<Slice> slice;
    const auto took = timed([&] {
      session = world.broker.connect();
      slice = must(session->open_slice({.limit = kLimit}), "open a slice");
      must(slice->grow(mebibytes(2)), "grow");
    });
    samples.add(took);
    state.SetIterationTime(seconds(took));
  }
  state.counters["median_us"] = samples.median_us();
  add_ratios(state, "", samples.median_us(), world);
  state.counters["per_near_call"] = samples.median_us() / empty_call.median_us();
  world.broker.await_sessions(0);
}

}  // namespace

void register_grow_shrink(World& world) {
  benchmark::RegisterBenchmark("grow_shrink/64MiB", grow_shrink, std::ref(world), mebibytes(64))
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("grow_shrink/2MiB", grow_shrink, std::ref(world), mebibytes(2))
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("first_memory", first_memory, std::ref(world))
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
