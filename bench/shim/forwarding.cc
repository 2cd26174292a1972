// Calls that the shim only passes on, and finding them.
#include <benchmark/benchmark.h>
#include <cuda.h>

#include <functional>
#include <optional>

#include "bench/must.h"
#include "bench/shim/world.h"

namespace gpumem::bench {
namespace {

constexpr int kBatch = 1000;

/// `direct`, `through` and, if there is one, `hook` are the same call; batches of them in turns.
template <class Call>
void compare(benchmark::State& state, const Call& direct, const Call& through,
             const std::optional<Call>& hook) {
  const auto batch = [](const Call& call) {
    return timed([&] {
      for (int i = 0; i < kBatch; ++i) call();
    });
  };
  Pair pair;
  for (auto _ : state) {
    pair.direct.add(batch(direct));
    pair.through.add(batch(through));
    if (hook) pair.hook.add(batch(*hook));
  }
  report(state, pair, "ns", kBatch / 1000.0);
}

auto version_by(decltype(::cuDriverGetVersion)* call) {
  return [call] {
    int version = 0;
    benchmark::DoNotOptimize(call(&version));
  };
}

/// Applies `by` to a function; nothing if the function is null.
template <class By, class Function>
auto if_there(const By& by, Function* function) {
  using Call = decltype(by(function));
  return function != nullptr ? std::optional<Call>(by(function)) : std::nullopt;
}

/// A trampoline to a call that does next to nothing.
void forwarded(benchmark::State& state, const ShimWorld& world) {
  using Call = decltype(::cuDriverGetVersion);
  compare(state, version_by(world.driver.find<Call>("cuDriverGetVersion")),
          version_by(world.shim.find<Call>("cuDriverGetVersion")),
          if_there(version_by, world.find_in_hook<Call>("cuDriverGetVersion")));
}

/// A call by the pointer that cuGetProcAddress of the shim gives, as programs of the CUDA runtime call.
void looked_up(benchmark::State& state, const ShimWorld& world) {
  using Call = decltype(::cuDriverGetVersion);
  void* found = nullptr;
  const CUresult result = world.shim.find<decltype(::cuGetProcAddress)>("cuGetProcAddress")(
      "cuDriverGetVersion", &found, 2020, 0);
  require(result == CUDA_SUCCESS, "cuGetProcAddress");
  compare(state, version_by(world.driver.find<Call>("cuDriverGetVersion")),
          version_by(reinterpret_cast<Call*>(found)), {});
}

void look_up(benchmark::State& state, const ShimWorld& world) {
  using Call = decltype(::cuGetProcAddress);
  const auto by = [](Call* call) {
    return [call] {
      void* found = nullptr;
      benchmark::DoNotOptimize(call("cuMemcpyHtoDAsync", &found, 11030, 0));
    };
  };
  compare(state, by(world.driver.find<Call>("cuGetProcAddress")),
          by(world.shim.find<Call>("cuGetProcAddress")),
          if_there(by, world.find_in_hook<Call>("cuGetProcAddress")));
}

}  // namespace

void register_forwarding(ShimWorld& world) {
  benchmark::RegisterBenchmark("forwarded_call", forwarded, std::cref(world));
  benchmark::RegisterBenchmark("looked_up_call", looked_up, std::cref(world));
  benchmark::RegisterBenchmark("look_up", look_up, std::cref(world));
}

}  // namespace gpumem::bench
