#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <functional>

#include "bench/must.h"
#include "bench/samples.h"
#include "bench/world.h"
#include "cuda/memory.h"

// The cost of the simulated driver beyond the system calls that memory of several processes needs.

namespace gpumem::bench {
namespace {

constexpr std::size_t kSize = mebibytes(2).count;

/// Memory that can be shared, made, mapped at a reserved place, given access, unmapped, let go.
void bare_cycle(void* place) {
  const UniqueFd memory(::memfd_create("extent", MFD_CLOEXEC));
  require(::ftruncate(memory.get(), kSize) == 0, "ftruncate");
  require(::mmap(place, kSize, PROT_NONE, MAP_SHARED | MAP_FIXED, memory.get(), 0) == place, "mmap");
  require(::mprotect(place, kSize, PROT_READ | PROT_WRITE) == 0, "mprotect");
  constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  require(::mmap(place, kSize, PROT_NONE, kReserved, -1, 0) == place, "mmap");
}

void simulated_cycle(const cuda::Api& api, CUdeviceptr place) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle = 0;
  require(api.cuMemCreate(&handle, kSize, &properties, 0) == CUDA_SUCCESS, "cuMemCreate");
  require(api.cuMemMap(place, kSize, 0, handle, 0) == CUDA_SUCCESS, "cuMemMap");
  require(api.cuMemSetAccess(place, kSize, &access, 1) == CUDA_SUCCESS, "cuMemSetAccess");
  require(api.cuMemUnmap(place, kSize) == CUDA_SUCCESS, "cuMemUnmap");
  require(api.cuMemRelease(handle) == CUDA_SUCCESS, "cuMemRelease");
}

void simulated_extent(benchmark::State& state, World& world) {
  if (std::getenv("GPUMEM_DRIVER_DIR") != nullptr)
    return state.SkipWithError("the driver is not the simulated one");
  const auto* const driver =
      must(cuda::Driver::open(world.broker.folder() + "/driver"), "the simulated driver");
  const auto range = must(cuda::Reservation::create(*driver, Bytes{kSize}, Bytes{kSize}), "addresses");
  void* const place = ::mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(place != MAP_FAILED, "mmap");
  Samples bare, simulated;
  for (auto _ : state) {  // in turns, so that both meet the same machine
    bare.add(timed([&] { bare_cycle(place); }));
    simulated.add(timed([&] { simulated_cycle(driver->api(), range.base()); }));
  }
  ::munmap(place, kSize);
  state.counters["median_us"] = simulated.median_us();
  state.counters["per_bare_calls"] = simulated.median_us() / bare.median_us();
}

}  // namespace

void register_simulated_extent(World& world) {
  benchmark::RegisterBenchmark("simulated_extent", simulated_extent, std::ref(world))
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace gpumem::bench
