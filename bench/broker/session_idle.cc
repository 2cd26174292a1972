#include <benchmark/benchmark.h>

#include "bench/broker/memory_of.h"
#include "bench/must.h"
#include "bench/roles.h"
#include "bench/world.h"

// What an idle session costs the broker. Real sessions, of a few processes; first without a call, so that
// there is the lane alone, then with one each, so that there is a gRPC connection too.

namespace gpumem::bench {
namespace {

constexpr std::size_t kSessions = 1000;
constexpr std::size_t kProcesses = 4;

double each(std::int64_t more) { return static_cast<double>(more) / kSessions; }

void session_idle(benchmark::State& state, World& world) {
  for (auto _ : state) {
    const ProcessMemory before = memory_of(world.broker.pid());
    std::vector<Process> clients;
    for (std::size_t i = 0; i < kProcesses; ++i) {
      clients.push_back(Process::start_role("hold_sessions",
                                            {world.broker.folder(), std::to_string(kSessions / kProcesses)}));
    }
    const std::int64_t slab_before = kernel_slab();
    for (Process& client : clients) client.command('o');
    world.broker.await_sessions(kSessions);
    const ProcessMemory lanes = memory_of(world.broker.pid());
    for (Process& client : clients) client.command('c');
    const ProcessMemory all = memory_of(world.broker.pid());
    state.counters["bytes_per_session"] = each(all.total() - before.total());
    state.counters["bytes_without_call"] = each(lanes.total() - before.total());
    state.counters["pss_per_session"] = each(all.proportional - before.proportional);
    state.counters["kernel_slab_both_ends"] = each(kernel_slab() - slab_before);
  }
  world.broker.await_sessions(0);
}

}  // namespace

void hold_sessions(const RoleArguments& arguments) {
  std::vector<Session> sessions;
  const auto count = std::stoul(arguments.at(1));
  while (const char what = next_command()) {
    if (what == 'o') {
      while (sessions.size() < count) sessions.push_back(connect_to(arguments.at(0)));
    } else {
      for (Session& session : sessions) must(session.ping(), "ping");
    }
    announce_ready();
  }
}

void register_session_idle(World& world) {
  benchmark::RegisterBenchmark("session_idle", session_idle, std::ref(world))
      ->Iterations(1)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace gpumem::bench
