#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "bench/broker/echo.h"
#include "bench/must.h"
#include "bench/samples.h"
#include "bench/world.h"
#include "cuda/memory.h"

// Unmapping a region, in turns with what it cannot do without. That is the driver's three calls for an extent
// of that size, and a message to a process that waits for one.

namespace gpumem::bench {
namespace {

constexpr Bytes kSize = mebibytes(64);

Clock::duration unmap_bare(const cuda::Driver& driver, int handle, const Echo& echo) {
  std::optional range = must(cuda::Reservation::create(driver, kSize, kSize), "addresses");
  std::optional extent = must(cuda::Allocation::import(driver, handle, kSize), "import");
  const std::array<const cuda::Allocation*, 1> all{&*extent};
  must(cuda::map(driver, range->base(), all, 0), "map");
  return timed([&] {
           require(driver.api().cuMemUnmap(range->base(), kSize.count) == CUDA_SUCCESS, "cuMemUnmap");
           extent.reset();
           range.reset();
         }) +
         echo.one_way();
}

void region_unmap(benchmark::State& state, World& world) {
  if (std::getenv("GPUMEM_DRIVER_DIR") != nullptr)
    return state.SkipWithError("the driver is not the simulated one");
  const auto& driver = *must(cuda::Driver::open(world.broker.folder() + "/driver"), "the simulated driver");
  Session session = world.broker.connect();
  Slice slice = must(session.open_slice({.limit = gibibytes(1)}), "open a slice");
  must(slice.grow(kSize), "grow");
  must(slice.publish("region"), "publish");
  const auto extent = must(cuda::Allocation::create(driver, 0, kSize), "an extent");
  const UniqueFd handle = must(extent.export_descriptor(), "its handle");
  const Echo echo;
  Samples unmap, bare;
  for (auto _ : state) {
    std::optional region = must(session.map_region("region"), "map");
    unmap.add(timed([&] { region.reset(); }));
    bare.add(unmap_bare(driver, handle.get(), echo));
  }
  state.counters["median_us"] = unmap.median_us();
  state.counters["bare_us"] = bare.median_us();
  state.counters["per_bare"] = unmap.median_us() / bare.median_us();
}

}  // namespace

void register_region_unmap(World& world) {
  benchmark::RegisterBenchmark("region_unmap/64MiB", region_unmap, std::ref(world))
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
