// cuMemAlloc and what goes with it: blocks of the slice, and the slice's figures.
#include <optional>

#include "client/shim/calls.h"
#include "client/shim/calls/charged.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuMemAlloc_v2)> real_alloc("cuMemAlloc_v2");
constinit RealCall<decltype(::cuMemAllocPitch_v2)> real_alloc_pitch("cuMemAllocPitch_v2");
constinit RealCall<decltype(::cuMemFree_v2)> real_free("cuMemFree_v2");
constinit RealCall<decltype(::cuMemGetInfo_v2)> real_get_info("cuMemGetInfo_v2");
constinit RealCall<decltype(::cuDeviceTotalMem_v2)> real_total("cuDeviceTotalMem_v2");
constinit RealCall<decltype(::cuMemGetAddressRange_v2)> real_range("cuMemGetAddressRange_v2");

constexpr std::size_t kPitch = 512;

/// The slice that the current context allocates from.
struct Place {
  CurrentContext current;
  Process::Found found;
  CUresult result() const { return current.result != CUDA_SUCCESS ? current.result : found.result; }
};

Place find_place() {
  Place place;
  place.current = CurrentContext::get();
  if (place.current.result == CUDA_SUCCESS) place.found = Process::current().memory_of(place.current.device);
  return place;
}

CUresult allocate_block(const char* call, const Place& place, std::size_t size, CUdeviceptr* out) {
  if (out == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr at = 0;
  const CUresult result = place.found.memory->allocate_for_all(call, {size}, &at);
  if (result != CUDA_SUCCESS) return result;
  Process::current().blocks().add(
      {.at = at, .bytes = {size}, .memory = place.found.memory, .context = place.current.context});
  *out = at;
  return CUDA_SUCCESS;
}

/// The size of `height` rows, each of which takes `pitch`.
std::optional<std::size_t> pitched(std::size_t width, std::size_t height, std::size_t* pitch) {
  std::size_t size = 0;
  if (__builtin_add_overflow(width, kPitch - 1, pitch)) return std::nullopt;
  *pitch = *pitch / kPitch * kPitch;
  if (__builtin_mul_overflow(*pitch, height, &size)) return std::nullopt;
  return size;
}

// The address tells the context, so none need be current. Memory of a pool is freed without waiting.
CUresult free_block(CUdeviceptr address) {
  Process& process = Process::current();
  const auto block = process.blocks().take(address);
  if (!block) {
    if (process.memory_at(address) != nullptr) return CUDA_ERROR_INVALID_VALUE;
    return free_of_driver(address, [address] { return real_free(address); });
  }
  process.exports().end(*block);
  return block->pool != nullptr ? block->memory->free_in_order(*block, nullptr)
                                : block->memory->free_synchronized(*block);
}

template <class Memory>
CUresult put_range(const Memory& memory, CUdeviceptr* base, std::size_t* size) {
  if (base != nullptr) *base = memory.at;
  if (size != nullptr) *size = memory.bytes.count;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult calls::cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return guarded([&] {
    const auto forward = [&] { return real_alloc(dptr, bytesize); };
    if (!Process::current().is_brokered()) return forward();
    const Place place = find_place();
    if (place.result() != CUDA_SUCCESS) return place.result();
    if (place.found.memory == nullptr) return forward();
    return or_of_driver(allocate_block("cuMemAlloc", place, bytesize, dptr), *place.found.memory, forward);
  });
}

CUresult calls::cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                                   unsigned int ElementSizeBytes) {
  return guarded([&] {
    const auto forward = [&] {
      return real_alloc_pitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    };
    if (!Process::current().is_brokered()) return forward();
    const Place place = find_place();
    if (place.result() != CUDA_SUCCESS) return place.result();
    if (place.found.memory == nullptr) return forward();
    const bool known = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
    std::size_t pitch = 0;
    const auto size = pitched(WidthInBytes, Height, &pitch);
    if (pPitch == nullptr || !known || !size) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = allocate_block("cuMemAllocPitch", place, *size, dptr);
    if (result == CUDA_SUCCESS) *pPitch = pitch;
    return or_of_driver(result, *place.found.memory, forward);
  });
}

CUresult calls::cuMemFree_v2(CUdeviceptr dptr) {
  return guarded([&] {
    const bool is_driver_s = dptr == 0 || !Process::current().is_brokered();
    return is_driver_s ? real_free(dptr) : free_block(dptr);
  });
}

CUresult calls::cuMemGetInfo_v2(size_t* free, size_t* total) {
  return guarded([&] {
    if (!Process::current().is_brokered()) return real_get_info(free, total);
    const Place place = find_place();
    if (place.result() != CUDA_SUCCESS) return place.result();
    DeviceMemory* const memory = place.found.memory;
    if (memory == nullptr) return real_get_info(free, total);
    Process::current().settle(*memory);
    const MemoryFigures figures = memory->figures();
    if (free != nullptr) *free = figures.free.count;
    if (total != nullptr) *total = figures.total.count;
    return CUDA_SUCCESS;
  });
}

CUresult calls::cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return guarded([&] {
    const CUresult known = real_total(bytes, dev);
    if (known != CUDA_SUCCESS) return known;
    const auto found = Process::current().memory_of(dev);
    if (found.memory != nullptr) *bytes = found.memory->limit().count;
    return found.result;
  });
}

CUresult calls::cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  return guarded([&] {
    Process& process = Process::current();
    const auto block = process.is_brokered() ? process.blocks().find(dptr) : std::nullopt;
    if (block) return put_range(*block, pbase, psize);
    if (const auto mapped = process.handles().find(dptr)) return put_range(*mapped, pbase, psize);
    if (const auto imported = process.imports().find(dptr)) return put_range(*imported, pbase, psize);
    return process.is_of_a_block(dptr) ? CUDA_ERROR_NOT_FOUND : real_range(pbase, psize, dptr);
  });
}

}  // namespace gpumem::shim
