#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "bench/broker/greeter.h"
#include "bench/must.h"
#include "bench/samples.h"
#include "bench/world.h"

// From connect to the broker's welcome, and goodbye; with a call in between and without. In turns with each,
// a connection to a process that only asks the kernel who that is. What a job adds.

namespace gpumem::bench {
namespace {

void session_open(benchmark::State& state, World& world, bool calls) {
  Samples samples, connected, bare;
  const Greeter greeter;
  for (auto _ : state) {
    std::optional<Session> session;
    const auto connect = timed([&] { session = world.broker.connect(); });
    connected.add(connect);
    samples.add(connect + timed([&] {
                  if (calls) must(session->ping(), "ping");
                  session.reset();
                }));
    bare.add(greeter.connect());
  }
  state.counters["median_us"] = samples.median_us();
  state.counters["connect_us"] = connected.median_us();
  state.counters["bare_connect_us"] = bare.median_us();
  state.counters["connect_per_bare"] = connected.median_us() / bare.median_us();
  state.counters["per_second"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  world.broker.await_sessions(0);
}

// A session that joins a job, in turns with one that joins none: until the first call is answered, and until
// it has its first memory.
void join_job(benchmark::State& state, World& world) {
  Session owner = world.broker.connect();
  ::setenv("GPUMEM_JOB", std::to_string(must(owner.begin_job({}), "begin a job")).c_str(), 1);
  std::array<Samples, 2> opened;
  std::array<Samples, 2> first_memory;
  for (auto _ : state) {
    for (const bool joins : {false, true}) {
      world.broker.await_stock();
      std::optional<Session> session;  // what ends with them does not count
      std::optional<Slice> slice;
      opened[joins].add(timed([&] {
        session =
            must(Session::connect({.runtime_folder = world.broker.folder(), .join_job = joins}), "connect");
        must(session->ping(), "ping");
      }));
      first_memory[joins].add(timed([&] {
        slice = must(session->open_slice({.limit = gibibytes(1)}), "open a slice");
        must(slice->grow(mebibytes(2)), "grow");
      }));
      require((session->job() != 0) == joins, "the session is not where it should be");
    }
  }
  ::unsetenv("GPUMEM_JOB");
  state.counters["opened_us"] = opened[true].median_us();
  state.counters["opened_ratio"] = opened[true].median_us() / opened[false].median_us();
  state.counters["first_memory_ratio"] = first_memory[true].median_us() / first_memory[false].median_us();
}

}  // namespace

void register_session_open(World& world) {
  benchmark::RegisterBenchmark("session_open", session_open, std::ref(world), false)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("session_open/first_call", session_open, std::ref(world), true)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("join_job", join_job, std::ref(world))
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
