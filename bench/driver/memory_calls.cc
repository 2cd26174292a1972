#include <unistd.h>

#include "bench/driver/driver_calls.h"

namespace gpumem::bench {
namespace {

constexpr int kFewest = 3;
constexpr int kMost = 300;
// The simulated driver copies and sets memory by the processor, page by page.
constexpr Bytes kLargestCopy = mebibytes(64);

/// Unmaps what a failed round leaves mapped.
class Unmapped {
 public:
  Unmapped(const cuda::Driver& driver, cuda::Address at) : driver_(driver), at_(at) {}
  ~Unmapped() {
    if (mapped_.count != 0) driver_.api().cuMemUnmap(at_, mapped_.count);
  }
  Unmapped(const Unmapped&) = delete;
  Unmapped& operator=(const Unmapped&) = delete;
  void grow(Bytes by) { mapped_ += by; }
  void done() { mapped_ = {}; }

 private:
  const cuda::Driver& driver_;
  const cuda::Address at_;
  Bytes mapped_;
};

}  // namespace

template <class Work>
Result<void> MemoryCalls::call(const char* name, const Shape& shape, Work&& work) {
  const TimedCall key{name, shape.total(), shape.extents, with_context_};
  return driver_.check(times_.time(key, std::forward<Work>(work)), name);
}

void MemoryCalls::run(const Shape& shape, Clock::duration patience) {
  const auto deadline = Clock::now() + patience;
  for (int count = 0; count < kMost && (count < kFewest || Clock::now() < deadline); ++count) {
    const auto done = round(shape);
    if (done) continue;
    failed_.push_back({{"size", shape.extent.count},
                       {"extents", shape.extents},
                       {"context", with_context_},
                       {"error", done.error().message}});
    return;
  }
}

Result<void> MemoryCalls::round(const Shape& shape) {
  auto allocations = create(shape);
  if (!allocations) return allocations.error();
  if (shape.extents == 1) {
    if (auto passed = pass_on(shape, allocations->front()); !passed) return passed;
  }
  if (auto mapped = map(shape, *allocations); !mapped) return mapped;
  for (cuda::Allocation& one : *allocations) {
    times_.time({"cuMemRelease", shape.extent, 1, with_context_}, [&] {
      const cuda::Allocation released = std::move(one);
      return 0;
    });
  }
  return {};
}

Result<std::vector<cuda::Allocation>> MemoryCalls::create(const Shape& shape) {
  std::vector<cuda::Allocation> allocations;
  for (std::size_t i = 0; i < shape.extents; ++i) {
    auto made = times_.time({"cuMemCreate", shape.extent, 1, with_context_},
                            [&] { return cuda::Allocation::create(driver_, device_.ordinal, shape.extent); });
    if (!made) return made.error();
    allocations.push_back(std::move(*made));
  }
  return allocations;
}

Result<void> MemoryCalls::pass_on(const Shape& shape, const cuda::Allocation& allocation) {
  const auto key = [&](const char* name) { return TimedCall{name, shape.extent, 1, with_context_}; };
  auto descriptor =
      times_.time(key("cuMemExportToShareableHandle"), [&] { return allocation.export_descriptor(); });
  if (!descriptor) return descriptor.error();
  auto imported = times_.time(key("cuMemImportFromShareableHandle"), [&] {
    return cuda::Allocation::import(driver_, descriptor->get(), shape.extent);
  });
  if (!imported) return imported.error();
  times_.time(key("cuMemRelease of an import"), [&] {
    const cuda::Allocation released = std::move(*imported);
    return 0;
  });
  const int raw = descriptor->release();
  times_.time(key("close of the descriptor"), [&] { return ::close(raw); });
  return {};
}

Result<void> MemoryCalls::map(const Shape& shape, const std::vector<cuda::Allocation>& allocations) {
  const TimedCall reserving{"cuMemAddressReserve", shape.total(), shape.extents, with_context_};
  auto range = times_.time(
      reserving, [&] { return cuda::Reservation::create(driver_, shape.total(), device_.granularity); });
  if (!range) return range.error();
  {
    Unmapped mapped(driver_, range->base());
    for (std::size_t i = 0; i < shape.extents; ++i) {
      const cuda::Address at = range->base() + i * shape.extent.count;
      auto done = call("cuMemMap", {shape.extent}, [&] {
        return driver_.api().cuMemMap(at, shape.extent.count, 0, allocations[i].handle(), 0);
      });
      if (!done) return done;
      mapped.grow(shape.extent);
    }
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_.ordinal};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    auto allowed = call("cuMemSetAccess", shape, [&] {
      return driver_.api().cuMemSetAccess(range->base(), shape.total().count, &access, 1);
    });
    if (!allowed) return allowed;
    if (auto used = use(shape, range->base()); !used) return used;
    auto gone = call("cuMemUnmap", shape,
                     [&] { return driver_.api().cuMemUnmap(range->base(), shape.total().count); });
    if (!gone) return gone;
    mapped.done();
  }
  times_.time({"cuMemAddressFree", shape.total(), shape.extents, with_context_}, [&] {
    const cuda::Reservation freed = std::move(*range);
    return 0;
  });
  return {};
}

Result<void> MemoryCalls::use(const Shape& shape, cuda::Address at) {
  if (!with_context_ || shape.extents != 1 || shape.extent > kLargestCopy) return {};
  std::vector<char> host(shape.extent.count);
  const auto& api = driver_.api();
  auto set = call("cuMemsetD8 and cuCtxSynchronize", shape, [&] {
    const CUresult started = api.cuMemsetD8(at, 1, host.size());
    return started == CUDA_SUCCESS ? api.cuCtxSynchronize() : started;
  });
  if (!set) return set;
  auto in = call("cuMemcpyHtoD", shape, [&] { return api.cuMemcpyHtoD(at, host.data(), host.size()); });
  if (!in) return in;
  return call("cuMemcpyDtoH", shape, [&] { return api.cuMemcpyDtoH(host.data(), at, host.size()); });
}

}  // namespace gpumem::bench
