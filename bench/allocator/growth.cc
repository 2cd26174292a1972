#include <benchmark/benchmark.h>

#include "bench/must.h"
#include "bench/samples.h"
#include "bench/world.h"

// The time that a program waits while its memory grows, through a real broker: by the allocator, and by a
// slice alone in the same run. With --costs h200 the simulated driver's calls take the time that they take on
// a GPU.

namespace gpumem::bench {
namespace {

constexpr Bytes kLimit = gibibytes(12);
constexpr Bytes kTarget = gibibytes(8);
constexpr Bytes kBlock = mebibytes(64);
constexpr std::uint64_t kBlocks = kTarget.count / kBlock.count;
constexpr int kTurns = 7;

/// Work of a program between two allocations, such as filling a buffer or reading a file.
constexpr std::chrono::milliseconds kWork{2};
void work() {
  const auto end = Clock::now() + kWork;
  while (Clock::now() < end) continue;
}

void first_allocation(benchmark::State& state, World& world, Bytes bytes) {
  Session session = world.broker.connect();
  Samples first, grow;
  for (auto _ : state) {
    world.broker.await_stock();
    {
      Slice slice = must(session.open_slice({.limit = kLimit}), "open a slice");
      grow.add(timed([&] { must(slice.grow(bytes), "grow"); }));
    }
    world.broker.await_stock();
    Allocator allocator = must(session.open_allocator({.limit = kLimit}), "open an allocator");
    const auto took = timed([&] { must(allocator.allocate(bytes), "allocate"); });
    first.add(took);
    state.SetIterationTime(seconds(took));
  }
  state.counters["first_us"] = first.median_us();
  state.counters["grow_us"] = grow.median_us();
  state.counters["per_grow"] = first.median_us() / grow.median_us();
}

// The time in `allocate` until so many blocks are had. What the program does between them does not count.
template <class Allocate>
Clock::duration climb(bool works, Allocate&& allocate) {
  Clock::duration sum{};
  for (std::uint64_t i = 1; i <= kBlocks; ++i) {
    sum += timed([&] { allocate(i); });
    if (works) work();
  }
  return sum;
}

void growth_curve(benchmark::State& state, World& world, bool works) {
  Session session = world.broker.connect();
  Samples total, grow;
  for (auto _ : state) {
    world.broker.await_stock();
    {
      Slice slice = must(session.open_slice({.limit = kLimit}), "open a slice");
      grow.add(climb(works, [&](std::uint64_t i) { must(slice.grow({i * kBlock.count}), "grow"); }));
    }
    world.broker.await_stock();
    Allocator allocator = must(session.open_allocator({.limit = kLimit}), "open");
    const auto took = climb(works, [&](std::uint64_t) { must(allocator.allocate(kBlock), "allocate"); });
    total.add(took);
    state.SetIterationTime(seconds(took));
    state.counters["growths"] = static_cast<double>(must(allocator.statistics(), "statistics").growths);
  }
  state.counters["total_us"] = total.median_us();
  state.counters["grow_us"] = grow.median_us();
  state.counters["per_grow"] = total.median_us() / grow.median_us();
}

void register_curve(World& world, const char* name, bool works) {
  benchmark::RegisterBenchmark(name, growth_curve, std::ref(world), works)
      ->Iterations(kTurns)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

void register_allocator_growth(World& world) {
  for (const Bytes bytes : {mebibytes(2), mebibytes(64), gibibytes(1)})
    benchmark::RegisterBenchmark(("first_allocation/" + to_string(bytes)).c_str(), first_allocation,
                                 std::ref(world), bytes)
        ->Iterations(kTurns)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  register_curve(world, "growth_curve/back_to_back", false);
  register_curve(world, "growth_curve/with_work_between", true);
}

}  // namespace gpumem::bench
