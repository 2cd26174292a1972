#pragma once
#include <benchmark/benchmark.h>

#include <optional>
#include <string>

#include "bench/broker/broker.h"
#include "bench/must.h"
#include "bench/samples.h"
#include "bench/shim/library.h"

namespace gpumem::bench {

/// The common setting of the shim's benchmarks: a broker on one GPU, and in this process its driver twice,
/// directly and through the shim, which has started and borrows from the broker. Optionally a third time
/// through another library in front of the driver.
/// Environment  GPUMEM_DRIVER_DIR, GPUMEM_BENCH_POOL: as Broker takes them. GPUMEM_OTHER_HOOK: the other
///              library, by its file.
struct ShimWorld {
  ShimWorld();

  Broker broker;
  const std::string shim_folder;
  /// The libcuda.so.1 of both, by path.
  const std::string driver_file;
  const std::string shim_file;
  Library driver;
  Library shim;
  const std::optional<Library> hook;
  /// The hook's function, or null: there is no hook, or it has no such function.
  template <class Function>
  Function* find_in_hook(const char* name) const {
    return hook ? hook->find_if_there<Function>(name) : nullptr;
  }

  /// False: the driver is a real one, whose calls take the time that they take.
  bool is_simulated() const;
  /// From now on the simulated driver's calls take the time of `profile`; `none`: no more than their work.
  void set_costs(const std::string& profile) const;
  /// Makes the device's primary context current, once.
  void use_device();
  bool has_context = false;
};

/// Times of a call directly, through the shim and, where there is one, through the other hook.
struct Pair {
  Samples direct, through, hook;
};

/// Counters in `unit` ("ns", "us", "ms") of `per_unit` microseconds each: the medians and what is between
/// them.
void report(benchmark::State& state, const Pair& pair, const std::string& unit, double per_unit);

void register_forwarding(ShimWorld& world);
void register_memory(ShimWorld& world);
void register_start_up(ShimWorld& world);

}  // namespace gpumem::bench
