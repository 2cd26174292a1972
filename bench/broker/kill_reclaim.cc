#include <benchmark/benchmark.h>
#include <csignal>
#include <string>

#include "bench/must.h"
#include "bench/roles.h"
#include "bench/samples.h"
#include "bench/world.h"

// A client with many leases is killed: how long until all of its memory is proved free. How long a growth
// waits that needs some of this memory, or all.

namespace gpumem::bench {
namespace {

void kill_reclaim(benchmark::State& state, World& world, std::size_t leases) {
  Samples reclaim;
  Samples exit;
  for (auto _ : state) {
    Process client = Process::start_role("hold_leases", {world.broker.folder(), std::to_string(leases)});
    client.await_ready();
    require(world.broker.device().active() == leases * mebibytes(2).count, "not all leases are active");
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

constexpr std::size_t kFewLeases = 200;

// All other memory is held, so the growth waits for what the client had.
void next_after_kill(benchmark::State& state, World& world, Bytes next) {
  Samples until;
  for (auto _ : state) {
    Process client = Process::start_role("hold_leases", {world.broker.folder(), std::to_string(kFewLeases)});
    client.await_ready();
    Session session = world.broker.connect();
    Slice rest = must(session.open_slice({}), "open a slice");
    must(rest.grow({world.broker.device().free()}), "grow");
    Slice slice = must(session.open_slice({.limit = next}), "open a slice");
    const auto took = timed([&] {
      client.signal(SIGKILL);
      must(slice.grow(next, {.wait = std::chrono::seconds(10)}), "grow");
    });
    client.join();
    until.add(took);
    state.SetIterationTime(seconds(took));
    must(slice.shrink({}), "shrink");
    must(rest.shrink({}), "shrink");
    world.broker.await_all_free();
  }
  state.counters["until_ms"] = until.median_us() / 1000;
  world.broker.await_sessions(0);
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
  for (const std::size_t leases : {std::size_t{1000}, kFewLeases})
    benchmark::RegisterBenchmark(("kill_reclaim/" + std::to_string(leases)).c_str(), kill_reclaim,
                                 std::ref(world), leases)
        ->Iterations(7)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  for (const std::size_t leases : {std::size_t{1}, kFewLeases}) {
    const Bytes next{leases * mebibytes(2).count};
    const std::string name = "kill_reclaim/200/next:" + std::to_string(next.count >> 20) + "MiB";
    benchmark::RegisterBenchmark(name.c_str(), next_after_kill, std::ref(world), next)
        ->Iterations(7)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace gpumem::bench
