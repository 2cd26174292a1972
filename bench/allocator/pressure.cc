#include <benchmark/benchmark.h>
#include <unistd.h>

#include "bench/must.h"
#include "bench/roles.h"
#include "bench/samples.h"
#include "bench/world.h"
#include "gpumem/allocator.h"

// Somebody waits for memory that another process's allocator has, and does not use: how much longer that
// takes than memory that is free. From the growth to mapped memory, through a real broker.

namespace gpumem::bench {
namespace {

constexpr uid_t kOtherUser = 61'007;  // sessions of one user are not asked for each other
constexpr Bytes kBlock = mebibytes(64);

void unused_memory_of_another(benchmark::State& state, World& world) {
  if (geteuid() != 0) {
    state.SkipWithError("needs root: the other process is another user's");
    return;
  }
  const Bytes pool{world.broker.device().pool()};
  const auto eighths = [&](std::uint64_t of) { return Bytes{pool.count / 8 * of}.rounded_down(kBlock); };
  const Bytes wanted = eighths(3);
  Process other =
      Process::start_role("fill_and_free", {world.broker.folder(), std::to_string(eighths(7).count)});
  other.await_ready();
  Session session = world.broker.connect();
  Slice slice = must(session.open_slice({.limit = pool}), "open a slice");
  const auto grow = [&] {
    const auto took = timed([&] { must(slice.grow(wanted, {.wait = std::chrono::seconds(30)}), "grow"); });
    must(slice.shrink({}), "shrink");
    return took;
  };
  Samples free, pressed;
  for (auto _ : state) {
    world.broker.await_stock();
    free.add(grow());
    world.broker.await_stock();
    other.command('f');
    const auto took = grow();
    pressed.add(took);
    state.SetIterationTime(seconds(took));
    other.command('t');
  }
  state.counters["free_ms"] = free.median_us() / 1000;
  state.counters["pressed_ms"] = pressed.median_us() / 1000;
  state.counters["slowest_ms"] = pressed.quantile_us(1) / 1000;
  state.counters["per_free"] = pressed.median_us() / free.median_us();
}

}  // namespace

void fill_and_free(const RoleArguments& arguments) {
  require(setuid(kOtherUser) == 0, "cannot become another user");  // in the group that may connect
  Session session = connect_to(arguments.at(0));
  const Bytes bytes{std::stoull(arguments.at(1))};
  Allocator allocator =
      must(session.open_allocator({.limit = bytes, .idle = std::chrono::hours(1)}), "open an allocator");
  announce_ready();
  for (char what = next_command(); what != '\0'; what = next_command()) {
    if (what == 'f') {
      std::vector<std::uint64_t> blocks;
      for (Bytes had; had < bytes; had += kBlock)
        blocks.push_back(must(allocator.allocate(kBlock), "allocate"));
      for (const std::uint64_t block : blocks) must(allocator.deallocate(block, kBlock), "deallocate");
    } else {
      must(allocator.trim(Allocator::kUnknownSize), "trim");
    }
    announce_ready();
  }
}

void register_pressed_allocator(World& world) {
  benchmark::RegisterBenchmark("pressed_allocator", unused_memory_of_another, std::ref(world))
      ->Iterations(7)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace gpumem::bench
