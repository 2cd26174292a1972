// cuMemAlloc and cuMemFree: of the slice through the shim, and of the device by the driver.
#include <benchmark/benchmark.h>
#include <cuda.h>

#include <functional>
#include <optional>
#include <vector>

#include "bench/must.h"
#include "bench/shim/world.h"

namespace gpumem::bench {
namespace {

using Allocate = decltype(::cuMemAlloc_v2);
using Free = decltype(::cuMemFree_v2);

struct Sized {
  const char* name;
  std::size_t bytes;
};
constexpr Sized kSizes[] = {
    {"4KiB", 4UL << 10}, {"2MiB", 2UL << 20}, {"64MiB", 64UL << 20}, {"1GiB", 1UL << 30}};
constexpr Sized kSegmentSizes[] = {{"2MiB", 2UL << 20}, {"20MiB", 20UL << 20}};  ///< PyTorch's
constexpr Sized kSustainedSizes[] = {{"2MiB", 2UL << 20}, {"20MiB", 20UL << 20}, {"64MiB", 64UL << 20}};
constexpr std::size_t kSustained = 600;             ///< blocks
constexpr std::size_t kMostSustained = 10UL << 30;  ///< bytes of them

/// Allocation and freeing of one library.
struct Memory {
  explicit Memory(const Library& library)
      : allocate(library.find<Allocate>("cuMemAlloc_v2")), free(library.find<Free>("cuMemFree_v2")) {}
  /// Nothing: there is no other hook, or it does not start.
  static std::optional<Memory> of_hook(const ShimWorld& world) {
    auto* const init = world.find_in_hook<decltype(::cuInit)>("cuInit");
    return init != nullptr && init(0) == CUDA_SUCCESS ? std::optional<Memory>(*world.hook) : std::nullopt;
  }

  CUdeviceptr take(std::size_t bytes) const {
    CUdeviceptr at = 0;
    require(allocate(&at, bytes) == CUDA_SUCCESS, "cuMemAlloc");
    return at;
  }
  void give_back(CUdeviceptr at) const { require(free(at) == CUDA_SUCCESS, "cuMemFree"); }

  Allocate* const allocate;
  Free* const free;
};

void prepare(ShimWorld& world, const std::string& costs) {
  world.use_device();
  if (world.is_simulated()) world.set_costs(costs);
}

/// Once and again, as programs do that free and allocate for each step.
void alloc_free(benchmark::State& state, ShimWorld& world, const std::string& costs, std::size_t bytes) {
  prepare(world, costs);
  const Memory direct(world.driver), through(world.shim);
  const auto hook = Memory::of_hook(world);
  const auto both = [bytes](const Memory& memory) { memory.give_back(memory.take(bytes)); };
  both(through);  // the slice has grown
  Pair pair;
  for (auto _ : state) {
    pair.direct.add(timed([&] { both(direct); }));
    pair.through.add(timed([&] { both(through); }));
    if (hook) pair.hook.add(timed([&] { both(*hook); }));
  }
  report(state, pair, "us", 1);
}

/// Allocation and freeing in the order of a stream of one's own, of one library.
struct OrderedMemory {
  explicit OrderedMemory(const Library& library)
      : allocate(library.find<decltype(::cuMemAllocAsync)>("cuMemAllocAsync")),
        free(library.find<decltype(::cuMemFreeAsync)>("cuMemFreeAsync")),
        destroy(library.find<decltype(::cuStreamDestroy_v2)>("cuStreamDestroy_v2")) {
    require(library.find<decltype(::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING) ==
                CUDA_SUCCESS,
            "cuStreamCreate");
  }
  ~OrderedMemory() { (void)destroy(stream); }
  OrderedMemory(const OrderedMemory&) = delete;
  OrderedMemory& operator=(const OrderedMemory&) = delete;

  void both(std::size_t bytes) const {
    CUdeviceptr at = 0;
    require(allocate(&at, bytes, stream) == CUDA_SUCCESS, "cuMemAllocAsync");
    require(free(at, stream) == CUDA_SUCCESS, "cuMemFreeAsync");
  }

  decltype(::cuMemAllocAsync)* const allocate;
  decltype(::cuMemFreeAsync)* const free;
  decltype(::cuStreamDestroy_v2)* const destroy;
  CUstream stream = nullptr;
};

/// As alloc_free, in the order of a stream.
void alloc_free_async(benchmark::State& state, ShimWorld& world, const std::string& costs,
                      std::size_t bytes) {
  constexpr int kPairs = 100;
  prepare(world, costs);
  const OrderedMemory direct(world.driver), through(world.shim);
  const auto pairs = [bytes](const OrderedMemory& memory) {
    for (int i = 0; i < kPairs; ++i) memory.both(bytes);
  };
  pairs(direct);
  pairs(through);
  Pair pair;
  for (auto _ : state) {
    pair.direct.add(timed([&] { pairs(direct); }) / kPairs);
    pair.through.add(timed([&] { pairs(through); }) / kPairs);
  }
  report(state, pair, "us", 1);
}

constexpr std::size_t kGranularity = 2UL << 20;

/// Addresses, an extent, its mapping and its access by the driver's own calls: what a growth is made of.
class Mapped {
 public:
  explicit Mapped(const Library& library)
      : reserve_(library.find<decltype(::cuMemAddressReserve)>("cuMemAddressReserve")),
        create_(library.find<decltype(::cuMemCreate)>("cuMemCreate")),
        map_(library.find<decltype(::cuMemMap)>("cuMemMap")),
        set_access_(library.find<decltype(::cuMemSetAccess)>("cuMemSetAccess")),
        unmap_(library.find<decltype(::cuMemUnmap)>("cuMemUnmap")),
        release_(library.find<decltype(::cuMemRelease)>("cuMemRelease")),
        free_(library.find<decltype(::cuMemAddressFree)>("cuMemAddressFree")) {}

  /// `bytes`  rounded up to whole units of 2 MiB.
  void make(std::size_t bytes) {
    CUmemAllocationProp asked{};
    asked.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    asked.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    asked.location.id = 0;
    const CUmemAccessDesc access{asked.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    bytes_ = (bytes + kGranularity - 1) / kGranularity * kGranularity;
    require(reserve_(&at_, bytes_, 0, 0, 0) == CUDA_SUCCESS, "cuMemAddressReserve");
    require(create_(&extent_, bytes_, &asked, 0) == CUDA_SUCCESS, "cuMemCreate");
    require(map_(at_, bytes_, 0, extent_, 0) == CUDA_SUCCESS, "cuMemMap");
    require(set_access_(at_, bytes_, &access, 1) == CUDA_SUCCESS, "cuMemSetAccess");
  }
  void unmake() {
    require(unmap_(at_, bytes_) == CUDA_SUCCESS && release_(extent_) == CUDA_SUCCESS &&
                free_(at_, bytes_) == CUDA_SUCCESS,
            "cuMemUnmap, cuMemRelease or cuMemAddressFree");
  }

 private:
  decltype(::cuMemAddressReserve)* reserve_;
  decltype(::cuMemCreate)* create_;
  decltype(::cuMemMap)* map_;
  decltype(::cuMemSetAccess)* set_access_;
  decltype(::cuMemUnmap)* unmap_;
  decltype(::cuMemRelease)* release_;
  decltype(::cuMemAddressFree)* free_;
  CUdeviceptr at_ = 0;
  CUmemGenericAllocationHandle extent_ = 0;
  std::size_t bytes_ = 0;
};

/// Gives the slice's idle memory back, and waits until the broker is ready to lend it again.
void empty_slice(const ShimWorld& world) {
  CUmemoryPool pool = nullptr;
  require(world.shim.find<decltype(::cuDeviceGetDefaultMemPool)>("cuDeviceGetDefaultMemPool")(&pool, 0) ==
                  CUDA_SUCCESS &&
              world.shim.find<decltype(::cuMemPoolTrimTo)>("cuMemPoolTrimTo")(pool, 0) == CUDA_SUCCESS,
          "cuMemPoolTrimTo");
  world.broker.await_stock();
}

/// An allocation that the slice has to grow for.
void growth(benchmark::State& state, ShimWorld& world, const std::string& costs, std::size_t bytes) {
  prepare(world, costs);
  const Memory direct(world.driver), through(world.shim);
  Mapped mapped(world.driver);
  Pair pair;
  Samples by_hand;
  for (auto _ : state) {
    empty_slice(world);
    CUdeviceptr at = 0;
    pair.through.add(timed([&] { at = through.take(bytes); }));
    through.give_back(at);
    pair.direct.add(timed([&] { at = direct.take(bytes); }));
    direct.give_back(at);
    by_hand.add(timed([&] { mapped.make(bytes); }));
    mapped.unmake();
  }
  report(state, pair, "us", 1);
  state.counters["mapped_us"] = by_hand.median_us();
  state.counters["per_mapped"] = pair.through.median_us() / by_hand.median_us();
}

/// Block after block, and none is freed, as a program does that loads its weights. The last half counts: by
/// then the broker has used up the extents that it had ready.
void sustained(benchmark::State& state, ShimWorld& world, const std::string& costs, std::size_t bytes) {
  prepare(world, costs);
  const Memory direct(world.driver), through(world.shim);
  const std::size_t half = std::min(kSustained, kMostSustained / bytes) / 2;
  Pair pair;
  for (auto _ : state) {
    empty_slice(world);
    std::vector<CUdeviceptr> all;
    const auto take_half = [&] {
      for (std::size_t i = 0; i < half; ++i) all.push_back(through.take(bytes));
    };
    take_half();
    pair.through.add(timed(take_half) / half);
    for (const CUdeviceptr at : all) through.give_back(at);
    for (std::size_t i = 0; i < half; ++i) {
      CUdeviceptr at = 0;
      pair.direct.add(timed([&] { at = direct.take(bytes); }));
      direct.give_back(at);
    }
  }
  report(state, pair, "us", 1);
}

/// As PyTorch's expandable segments grow: many extents of one size, each created and mapped by itself.
void segments(benchmark::State& state, ShimWorld& world, const std::string& costs, std::size_t bytes) {
  constexpr std::size_t kSegments = 64;
  prepare(world, costs);
  std::vector<Mapped> direct(kSegments, Mapped(world.driver)), through(kSegments, Mapped(world.shim));
  const auto one_by_one = [bytes](std::vector<Mapped>& all, Samples& into) {
    for (Mapped& one : all) into.add(timed([&] { one.make(bytes); }));
    for (Mapped& one : all) one.unmake();
  };
  Pair pair;
  for (auto _ : state) {
    empty_slice(world);
    one_by_one(through, pair.through);
    one_by_one(direct, pair.direct);
  }
  report(state, pair, "us", 1);
}

}  // namespace

void register_memory(ShimWorld& world) {
  const std::vector<std::string> all =
      world.is_simulated() ? std::vector<std::string>{"none", "h200"} : std::vector<std::string>{"real"};
  for (const std::string& costs : all) {
    for (const auto& [name, bytes] : kSizes) {
      const std::string what = "/" + costs + "/" + name;
      benchmark::RegisterBenchmark(("alloc_free" + what).c_str(), alloc_free, std::ref(world), costs, bytes)
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
      benchmark::RegisterBenchmark(("alloc_free_async" + what).c_str(), alloc_free_async, std::ref(world),
                                   costs, bytes)
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
      benchmark::RegisterBenchmark(("growth" + what).c_str(), growth, std::ref(world), costs, bytes)
          ->Iterations(world.is_simulated() ? 100 : 20)
          ->Unit(benchmark::kMicrosecond);
    }
    for (const auto& [name, bytes] : kSustainedSizes)
      benchmark::RegisterBenchmark(("sustained/" + costs + "/" + name).c_str(), sustained, std::ref(world),
                                   costs, bytes)
          ->Iterations(3)
          ->Unit(benchmark::kMicrosecond);
    for (const auto& [name, bytes] : kSegmentSizes)
      benchmark::RegisterBenchmark(("segments/" + costs + "/" + name).c_str(), segments, std::ref(world),
                                   costs, bytes)
          ->Iterations(10)
          ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace gpumem::bench
