#include <benchmark/benchmark.h>

#include <atomic>
#include <thread>

#include "bench/broker/echo.h"
#include "bench/must.h"
#include "bench/roles.h"
#include "bench/samples.h"
#include "bench/world.h"

// The effect of another process's storm of growths on a quiet client, and on two processes that only send
// each other a byte: these compete for the processors alone. Rounds without and with the storm take turns, so
// that the machine's own ups and downs fall on both.

namespace gpumem::bench {
namespace {

constexpr int kGrowsARound = 100;
constexpr auto kPause = std::chrono::milliseconds(1);

struct Measured {
  Samples grow;
  Samples echo;  // of two processes that have nothing to do with the broker
};

void measure_round(Slice& slice, const Echo& echo, Measured& measured) {
  for (int i = 0; i < kGrowsARound; ++i) {
    std::this_thread::sleep_for(kPause);
    measured.grow.add(timed([&] { must(slice.grow(mebibytes(2)), "grow"); }));
    must(slice.shrink({}), "shrink");
    std::this_thread::sleep_for(kPause);
    measured.echo.add(echo.round_trip());
  }
}

void neighbour_under_storm(benchmark::State& state, World& world, std::size_t threads) {
  Session session = world.broker.connect();
  Slice slice = must(session.open_slice({.limit = mebibytes(64)}), "open a slice");
  Process neighbour = Process::start_role("storm", {world.broker.folder(), std::to_string(threads)});
  neighbour.await_ready();
  const Echo echo;
  Measured quiet;
  Measured stormy;
  double neighbour_grows = 0;
  double storm_seconds = 0;
  for (auto _ : state) {
    measure_round(slice, echo, quiet);
    neighbour.command('s');
    const auto start = Clock::now();
    measure_round(slice, echo, stormy);
    neighbour.command('p');
    neighbour_grows += static_cast<double>(neighbour.receive_number());
    const double took = seconds(Clock::now() - start);
    storm_seconds += took;
    state.SetIterationTime(took / kGrowsARound);
    world.broker.await_stock();
  }
  state.counters["quiet_us"] = quiet.grow.median_us();
  state.counters["storm_us"] = stormy.grow.median_us();
  state.counters["storm_p99_us"] = stormy.grow.quantile_us(0.99);
  state.counters["storm_grows_per_second"] = neighbour_grows / storm_seconds;
  state.counters["ratio"] = stormy.grow.median_us() / quiet.grow.median_us();
  state.counters["echo_ratio"] = stormy.echo.median_us() / quiet.echo.median_us();
}

// The order to the storm's threads ('s' storm, 'p' pause, 'e' end), and the number of their growths.
struct Orders {
  std::atomic<int> wanted{'p'};
  std::atomic<std::uint64_t> grown{0};
};

void grow_and_shrink(const std::string& folder, Orders& orders) {
  Session session = connect_to(folder);
  Slice slice = must(session.open_slice({.limit = mebibytes(64)}), "open a slice");
  for (int now = 0; (now = orders.wanted.load()) != 'e';) {
    if (now != 's') {
      orders.wanted.wait(now);
      continue;
    }
    must(slice.grow(mebibytes(2)), "grow");
    must(slice.shrink({}), "shrink");
    ++orders.grown;
  }
}

}  // namespace

void storm(const RoleArguments& arguments) {
  Orders orders;
  std::vector<std::jthread> threads;
  for (std::size_t i = std::stoul(arguments.at(1)); i > 0; --i) {
    threads.emplace_back([&] { grow_and_shrink(arguments.at(0), orders); });
  }
  announce_ready();
  char what = 0;
  do {
    what = next_command();
    orders.wanted = what == 0 ? 'e' : what;
    orders.wanted.notify_all();
    if (what != 0) announce_ready();
    if (what == 'p') tell_number(orders.grown.exchange(0));
  } while (what != 0);
}

void register_neighbour(World& world) {
  benchmark::RegisterBenchmark("neighbour_under_storm", neighbour_under_storm, std::ref(world), 4)
      ->Iterations(5)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
