// gpumem_shim_bench: calls of the driver through the shim, each in turns with the same call of the driver
// itself. Google Benchmark's flags. GPUMEM_DRIVER_DIR: the folder of the driver; without it, a simulated one.
#include <benchmark/benchmark.h>
#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <functional>

#include "bench/must.h"
#include "bench/plain_names.h"
#include "bench/samples.h"
#include "bench/temporary_folder.h"
#include "sim/machine/machine.h"

namespace gpumem::bench {
namespace {

constexpr int kBatch = 1000;

void* open_library(const std::string& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  require(library != nullptr, "dlopen", file);
  return library;
}

template <class Function>
Function* find(void* library, const char* name) {
  void* const address = ::dlsym(library, name);
  require(address != nullptr, "dlsym", name);
  return reinterpret_cast<Function*>(address);
}

struct Libraries {
  void* driver;
  void* shim;
};

/// `direct` and `through` are the same call; batches of them in turns, so that both meet the same machine.
template <class Call>
void compare(benchmark::State& state, const Call& direct, const Call& through) {
  const auto batch = [](const Call& call) {
    return timed([&] {
      for (int i = 0; i < kBatch; ++i) call();
    });
  };
  Samples of_driver, of_shim;
  for (auto _ : state) {
    of_driver.add(batch(direct));
    of_shim.add(batch(through));
  }
  constexpr double kNanoseconds = 1000.0 / kBatch;
  state.counters["direct_ns"] = of_driver.median_us() * kNanoseconds;
  state.counters["through_ns"] = of_shim.median_us() * kNanoseconds;
  state.counters["added_ns"] = (of_shim.median_us() - of_driver.median_us()) * kNanoseconds;
  state.counters["ratio"] = of_shim.median_us() / of_driver.median_us();
}

auto version_by(decltype(::cuDriverGetVersion)* call) {
  return [call] {
    int version = 0;
    benchmark::DoNotOptimize(call(&version));
  };
}

/// A trampoline to a call that does next to nothing.
void forwarded(benchmark::State& state, const Libraries& libraries) {
  using Call = decltype(::cuDriverGetVersion);
  compare(state, version_by(find<Call>(libraries.driver, "cuDriverGetVersion")),
          version_by(find<Call>(libraries.shim, "cuDriverGetVersion")));
}

/// The same call by the pointer that cuGetProcAddress of the shim gives, as programs of the CUDA runtime
/// call.
void looked_up(benchmark::State& state, const Libraries& libraries) {
  using Call = decltype(::cuDriverGetVersion);
  void* found = nullptr;
  const CUresult result = find<decltype(::cuGetProcAddress)>(libraries.shim, "cuGetProcAddress")(
      "cuDriverGetVersion", &found, 2020, 0);
  require(result == CUDA_SUCCESS, "cuGetProcAddress");
  compare(state, version_by(find<Call>(libraries.driver, "cuDriverGetVersion")),
          version_by(reinterpret_cast<Call*>(found)));
}

void look_up(benchmark::State& state, const Libraries& libraries) {
  const auto by = [](decltype(::cuGetProcAddress)* call) {
    return [call] {
      void* found = nullptr;
      benchmark::DoNotOptimize(call("cuMemcpyHtoDAsync", &found, 11030, 0));
    };
  };
  compare(state, by(find<decltype(::cuGetProcAddress)>(libraries.driver, "cuGetProcAddress")),
          by(find<decltype(::cuGetProcAddress)>(libraries.shim, "cuGetProcAddress")));
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  const TemporaryFolder folder;
  std::string driver = folder.path() / "gpus";
  if (const char* const named = std::getenv("GPUMEM_DRIVER_DIR"); named != nullptr) {
    driver = named;
  } else {
    must(sim::create_machine(driver, "1x64MiB", SIM_LIBRARIES), "the simulated machine");
  }
  ::setenv("GPUMEM_REAL_LIBCUDA", driver.c_str(), 1);
  ::setenv("GPUMEM_OPTIONAL", "1", 1);  // no broker
  ::setenv("GPUMEM_RUNTIME_DIR", folder.path().c_str(), 1);
  const Libraries libraries{open_library(driver + "/libcuda.so.1"),
                            open_library(std::string(SHIM_LIBRARIES) + "/libcuda.so.1")};
  require(find<decltype(::cuInit)>(libraries.shim, "cuInit")(0) == CUDA_SUCCESS, "cuInit");
  benchmark::RegisterBenchmark("forwarded_call", forwarded, std::ref(libraries));
  benchmark::RegisterBenchmark("looked_up_call", looked_up, std::ref(libraries));
  benchmark::RegisterBenchmark("look_up", look_up, std::ref(libraries));
  PlainNames<benchmark::ConsoleReporter> reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  if (std::getenv("GPUMEM_DRIVER_DIR") == nullptr) must(sim::remove_machine(driver), "the simulated machine");
  return 0;
}

}  // namespace
}  // namespace gpumem::bench

int main(int argc, char** argv) {
  return gpumem::bench::main_of("gpumem_shim_bench", [&] { return gpumem::bench::run(argc, argv); });
}
