// What programs said of ranges of managed memory.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "calls.h"
#include "sim/driver/memory/managed_range.h"

namespace gpumem::sim {
namespace {

// Numbers of CUmem_range_attribute that older headers lack.
constexpr int kPreferredType = 5, kPreferredId = 6, kPrefetchedType = 7, kPrefetchedId = 8;

/// The advice that all pages of a range have in common; no location and no device where they differ.
Advice common(Call& driver, const ManagedRange& range) {
  std::optional<Advice> all;
  driver->advice.for_each(range.start, range.size, [&](const Advice& advice) {
    if (!all) all = advice;
    all->is_read_mostly &= advice.is_read_mostly;
    if (all->preferred != advice.preferred) all->preferred = {};
    if (all->prefetched != advice.prefetched) all->prefetched = {};
    std::erase_if(all->accessed_by, [&](int who) { return !advice.accessed_by.contains(who); });
  });
  return *all;
}

int device_of(const Whereabouts& place) {
  switch (place.type) {
    case Whereabouts::kDevice: return place.id;
    case Whereabouts::kHost:
    case Whereabouts::kHostNode: return CU_DEVICE_CPU;
    default: return CU_DEVICE_INVALID;
  }
}

CUresult put(int value, void* out, size_t size) {
  if (size != sizeof value) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult put_accessors(const Advice& advice, void* out, size_t size) {
  if (size == 0 || size % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<int> list(advice.accessed_by.begin(), advice.accessed_by.end());
  // The CPU is told last.
  std::stable_partition(list.begin(), list.end(), [](int who) { return who != Advice::kCpu; });
  list.resize(size / sizeof(int), CU_DEVICE_INVALID);
  std::memcpy(out, list.data(), size);
  return CUDA_SUCCESS;
}

CUresult answer(const Advice& advice, int attribute, void* out, size_t size) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: return put(advice.is_read_mostly, out, size);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: return put(device_of(advice.preferred), out, size);
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: return put_accessors(advice, out, size);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: return put(device_of(advice.prefetched), out, size);
    case kPreferredType: return put(advice.preferred.type, out, size);
    case kPreferredId: return put(advice.preferred.id, out, size);
    case kPrefetchedType: return put(advice.prefetched.type, out, size);
    case kPrefetchedId: return put(advice.prefetched.id, out, size);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult api::cuMemRangeGetAttribute(void* out, size_t size, CUmem_range_attribute attribute,
                                     CUdeviceptr start, size_t count) {
  Call driver;
  if (!driver) return driver.error();
  const ManagedRange range{start, count};
  if (const CUresult result = check(driver, range); result != CUDA_SUCCESS) return result;
  return answer(common(driver, range), attribute, out, size);
}

CUresult api::cuMemRangeGetAttributes(void** out, size_t* sizes, CUmem_range_attribute* attributes,
                                      size_t number, CUdeviceptr start, size_t count) {
  Call driver;
  if (!driver) return driver.error();
  const ManagedRange range{start, count};
  if (out == nullptr || sizes == nullptr || attributes == nullptr || number == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check(driver, range); result != CUDA_SUCCESS) return result;
  const Advice advice = common(driver, range);
  for (size_t i = 0; i < number; ++i) {
    const CUresult result = answer(advice, attributes[i], out[i], sizes[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
