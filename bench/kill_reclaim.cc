#include <benchmark/benchmark.h>
#include <csignal>

#include "bench/must.h"
#include "bench/roles.h"
#include "bench/samples.h"
#include "bench/world.h"

// A client with many leases is killed: how long until all of its memory is proved free.

namespace gpumem::bench {
namespace {

constexpr std::size_t kLeases = 1000;

void kill_reclaim(benchmark::State& state, World& world) {
  Samples reclaim;
  Samples exit;
  for (auto _ : state) {
    Process client = Process::start_role("hold_leases", {world.broker.folder(), std::to_string(kLeases)});
    client.await_ready();
    require(world.broker.device().active() == kLeases * mebibytes(2).count, "not all leases are active");
    const auto start = Clock::now();
    client.signal(SIGKILL);
    client.join();  // the kernel has to take the process down first; its memory is not free before
    const auto exited = Clock::now();
    world.broker.await_all_free();
    const auto freed = Clock::now();
    exit.add(exited - start);
    reclaim.add(freed - start);
    state.SetIterationTime(seconds(freed - start));
    world.broker.await_sessions(0);
  }
  state.counters["reclaim_ms"] = reclaim.median_us() / 1000;
  state.counters["slowest_ms"] = reclaim.quantile_us(1) / 1000;
  state.counters["exit_ms"] = exit.median_us() / 1000;
}

}  // namespace

void hold_leases(const RoleArguments& arguments) {
  Session session = connect_to(arguments.at(0));
  const std::size_t count = std::stoul(arguments.at(1));
  const Bytes unit = mebibytes(2);
  Slice slice = must(session.open_slice({.limit = {unit.count * count}}), "open a slice");
  for (std::size_t i = 1; i <= count; ++i) must(slice.grow({unit.count * i}), "grow");
  must(session.ping(), "ping");
  announce_ready();
  while (next_command() != '\0') continue;
}

void register_kill_reclaim(World& world) {
  benchmark::RegisterBenchmark("kill_reclaim/1000", kill_reclaim, std::ref(world))
      ->Iterations(7)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace gpumem::bench
