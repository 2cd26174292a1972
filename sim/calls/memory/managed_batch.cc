// Many ranges of managed memory at once.
#include <cuda.h>

#include <vector>

#include "calls.h"
#include "sim/calls/find_object.h"
#include "sim/driver/memory/managed_range.h"

#if CUDA_VERSION >= 13000
namespace gpumem::sim {
namespace {

struct Batch {
  CUdeviceptr* starts;
  size_t* sizes;
  size_t count;
  unsigned long long flags;
  CUstream stream;
};

struct Targets {
  CUmemLocation* locations;
  size_t* first;  ///< the first range of each location
  size_t count;
};

/// Does `act(driver)` after the checks that all batches share, as one piece of work in the stream.
template <class Act>
CUresult enqueue(const Batch& batch, Act act) {
  return with_current([&](Call& driver, const Context&) {
    const bool is_named = batch.stream != nullptr && batch.stream != CU_STREAM_LEGACY;
    if (batch.starts == nullptr || batch.sizes == nullptr || batch.count == 0 || batch.flags != 0 ||
        !is_named) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    StreamRef queue;
    if (const CUresult result = driver->queue_uncaptured(batch.stream, &queue); result != CUDA_SUCCESS)
      return result;
    for (size_t i = 0; i < batch.count; ++i) {
      const CUresult result = check(driver, {batch.starts[i], batch.sizes[i]});
      if (result != CUDA_SUCCESS) return result;
    }
    if (const CUresult result = act(driver); result != CUDA_SUCCESS) return result;
    driver->streams.submit_short(queue, [] {});
    return CUDA_SUCCESS;
  });
}

/// The places of the ranges in turn.
CUresult find_places(Call& driver, const Targets& targets, size_t count, std::vector<Whereabouts>* out) {
  const bool is_given = targets.locations != nullptr && targets.first != nullptr && targets.count > 0;
  if (!is_given || targets.count > count || targets.first[0] != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < targets.count; ++i) {
    const size_t end = i + 1 < targets.count ? targets.first[i + 1] : count;
    if (end <= targets.first[i] || end > count) return CUDA_ERROR_INVALID_VALUE;
    Whereabouts place;
    if (const CUresult result = find_place(driver, targets.locations[i], &place); result != CUDA_SUCCESS) {
      return result;
    }
    out->resize(end, place);
  }
  return CUDA_SUCCESS;
}

CUresult prefetch(const Batch& batch, const Targets& targets) {
  return enqueue(batch, [&](Call& driver) {
    std::vector<Whereabouts> places;
    const CUresult result = find_places(driver, targets, batch.count, &places);
    for (size_t i = 0; result == CUDA_SUCCESS && i < batch.count; ++i) {
      driver->advice.change(batch.starts[i], batch.sizes[i],
                            [&](Advice& advice) { advice.prefetched = places[i]; });
    }
    return result;
  });
}

}  // namespace

CUresult api::cuMemPrefetchBatchAsync(CUdeviceptr* starts, size_t* sizes, size_t count,
                                      CUmemLocation* locations, size_t* first, size_t location_count,
                                      unsigned long long flags, CUstream stream) {
  return prefetch({starts, sizes, count, flags, stream}, {locations, first, location_count});
}

/// Discarded memory may keep its bytes: CUDA promises no other contents.
CUresult api::cuMemDiscardBatchAsync(CUdeviceptr* starts, size_t* sizes, size_t count,
                                     unsigned long long flags, CUstream stream) {
  return enqueue({starts, sizes, count, flags, stream}, [](Call&) { return CUDA_SUCCESS; });
}
CUresult api::cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* starts, size_t* sizes, size_t count,
                                                CUmemLocation* locations, size_t* first,
                                                size_t location_count, unsigned long long flags,
                                                CUstream stream) {
  return prefetch({starts, sizes, count, flags, stream}, {locations, first, location_count});
}

}  // namespace gpumem::sim
#endif
