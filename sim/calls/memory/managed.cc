// Managed memory: the host and every device reach it. It never moves: it is memory of the device that was
// current when it was made, and is charged there. Advice and prefetches are checked and told again.
#include <cuda.h>

#include <vector>

#include "calls.h"
#include "sim/calls/find_object.h"
#include "sim/driver/memory/managed_range.h"

namespace gpumem::sim {
namespace {

template <class Where>
CUresult prefetch(const ManagedRange& range, const Where& where, CUstream stream) {
  return with_current([&](Call& driver, const Context&) {
    Whereabouts place;
    if (const CUresult result = check(driver, range); result != CUDA_SUCCESS) return result;
    if (const CUresult result = find_place(driver, where, &place); result != CUDA_SUCCESS) return result;
    StreamRef queue;
    if (const CUresult result = driver->queue_uncaptured(stream, &queue); result != CUDA_SUCCESS)
      return result;
    driver->advice.change(range.start, range.size, [&](Advice& advice) { advice.prefetched = place; });
    driver->streams.submit_short(queue, [] {});
    return CUDA_SUCCESS;
  });
}

/// Whether `advice` is about a place, and which places it may name.
bool names_a_place(CUmem_advise advice) {
  return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
         advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}
bool may_name(CUmem_advise advice, const Whereabouts& place) {
  return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || place.type != Whereabouts::kHostNode;
}

void apply(CUmem_advise kind, const Whereabouts& place, Advice& advice) {
  const int accessor = place.type == Whereabouts::kDevice ? place.id : Advice::kCpu;
  switch (kind) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY: advice.is_read_mostly = true; break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY: advice.is_read_mostly = false; break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: advice.preferred = place; break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: advice.preferred = {}; break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY: advice.accessed_by.insert(accessor); break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY: advice.accessed_by.erase(accessor); break;
  }
}

template <class Where>
CUresult advise(const ManagedRange& range, CUmem_advise kind, const Where& where) {
  Call driver;
  if (!driver) return driver.error();
  if (kind < CU_MEM_ADVISE_SET_READ_MOSTLY || kind > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult result = check(driver, range); result != CUDA_SUCCESS) return result;
  Whereabouts place;
  if (names_a_place(kind)) {
    if (const CUresult result = find_place(driver, where, &place); result != CUDA_SUCCESS) return result;
    if (!may_name(kind, place)) return CUDA_ERROR_INVALID_VALUE;
  }
  driver->advice.change(range.start, range.size, [&](Advice& advice) { apply(kind, place, advice); });
  return CUDA_SUCCESS;
}

/// Lets every device of the machine in, as the one that holds the memory is.
CUresult open_to_all(Call& driver, CUdeviceptr address) {
  std::vector<AccessChange> changes;
  for (std::uint32_t i = 0; i < driver->table->device_count(); ++i) {
    changes.push_back({i, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  return driver->space.set_access(address, driver->space.find(address).reservation->size, changes);
}

}  // namespace

CUresult api::cuMemAllocManaged(CUdeviceptr* address, size_t size, unsigned int flags) {
  return with_current([&](Call& driver, Context& context) {
    const bool is_known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
    if (address == nullptr || size == 0 || !is_known) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = driver->captures.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
    const CUresult result = driver->allocate(context, size, address, Use::kManaged);
    if (result != CUDA_SUCCESS) return result;
    const CUresult opened = open_to_all(driver, *address);
    if (opened != CUDA_SUCCESS) driver->free(*address);
    return opened;
  });
}

/// Every stream may use all of it at any time here, so nothing changes.
CUresult api::cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length,
                                     unsigned int flags) {
  return with_current([&](Call& driver, const Context&) {
    const bool is_known =
        flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
    const auto found = managed_at(driver, address);
    if (!is_known || !found || found->start != address || length > found->size)
      return CUDA_ERROR_INVALID_VALUE;
    StreamRef queue;
    if (const CUresult result = driver->queue_uncaptured(stream, &queue); result != CUDA_SUCCESS)
      return result;
    if (flags == CU_MEM_ATTACH_SINGLE && !driver->is_created(*queue)) return CUDA_ERROR_INVALID_VALUE;
    driver->streams.submit_short(queue, [] {});
    return CUDA_SUCCESS;
  });
}

CUresult api::cuMemPrefetchAsync(CUdeviceptr start, size_t size, CUdevice device, CUstream stream) {
  return prefetch({start, size}, device, stream);
}
CUresult api::cuMemAdvise(CUdeviceptr start, size_t size, CUmem_advise advice, CUdevice device) {
  return advise({start, size}, advice, device);
}
#if CUDA_VERSION >= 12020
CUresult api::cuMemPrefetchAsync_v2(CUdeviceptr start, size_t size, CUmemLocation location,
                                    unsigned int flags, CUstream stream) {
  return flags == 0 ? prefetch({start, size}, location, stream) : CUDA_ERROR_INVALID_VALUE;
}
CUresult api::cuMemAdvise_v2(CUdeviceptr start, size_t size, CUmem_advise advice, CUmemLocation location) {
  return advise({start, size}, advice, location);
}
#endif

}  // namespace gpumem::sim
