#include "sim/driver/memory/transfer.h"

#include <algorithm>
#include <cstring>

#include "sim/driver/driver.h"

namespace gpumem::sim {
namespace {

std::byte* pointer(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

/// The bytes from the first to the last that is touched; 0: they do not fit into 64 bits.
std::uint64_t span_of(const Place& place, const Shape& shape) {
  std::uint64_t rows = 0, slices = 0, span = 0;
  const bool wraps = __builtin_mul_overflow(shape.height - 1, place.row_pitch, &rows) ||
                     __builtin_mul_overflow(shape.depth - 1, place.slice_pitch, &slices) ||
                     __builtin_add_overflow(rows, slices, &span) ||
                     __builtin_add_overflow(span, shape.width, &span) ||
                     __builtin_add_overflow(place.address, span, &rows);
  return wraps ? 0 : span;
}

// Memory of a device's pool is its device's and those devices' that were given access.
CUresult check_pool_place(Call& driver, const Place& place, std::uint64_t span, bool is_write) {
  const auto found = driver->space.find(place.address);
  const bool is_host = found.mapping != nullptr && found.mapping->extent->device == layout::kHost;
  const std::uint32_t who = is_host ? layout::kHost : place.device;
  const CUresult result = driver->space.check_access(place.address, span, who, is_write);
  return result == CUDA_ERROR_ILLEGAL_ADDRESS ? CUDA_ERROR_INVALID_VALUE : result;
}

/// Whether all bytes are of one allocation of a graph that has no memory yet.
bool is_future_place(Call& driver, const Place& place, const Shape& shape) {
  const auto found = driver->space.find(place.address);
  if (found.reservation == nullptr || found.reservation->use != Use::kGraph || found.mapping != nullptr)
    return false;
  const std::uint64_t span = span_of(place, shape);
  return span != 0 && span <= found.reservation->size - (place.address - found.range_base);
}

CUresult check_place(Call& driver, const Place& place, const Shape& shape, bool is_write) {
  if (place.address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shape.height > 1 && place.row_pitch < shape.width) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t span = span_of(place, shape);
  if (span == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto found = driver->space.find(place.address);
  if (found.reservation == nullptr) {
    return place.side == Side::kAny || driver->is_host_memory(place.address, span) ? CUDA_SUCCESS
                                                                                   : CUDA_ERROR_INVALID_VALUE;
  }
  if (found.reservation->use == Use::kPool) return check_pool_place(driver, place, span, is_write);
  // Memory of cuMemAlloc belongs to the context's device; the driver copies it to and from other devices.
  const bool is_own = found.reservation->use != Use::kProgram && found.mapping != nullptr;
  return driver->space.check_access(place.address, span,
                                    is_own ? found.mapping->extent->device : place.device, is_write);
}

/// Calls `act(first, second)` with the addresses of every row.
template <class Act>
void for_each_row(const Shape& shape, const Place& first, const Place& second, Act act) {
  for (std::uint64_t slice = 0; slice < shape.depth; ++slice) {
    for (std::uint64_t row = 0; row < shape.height; ++row) {
      act(pointer(first.address + slice * first.slice_pitch + row * first.row_pitch),
          pointer(second.address + slice * second.slice_pitch + row * second.row_pitch));
    }
  }
}

/// Checks, keeps the memory mapped and moves the bytes.
template <class What, class Move>
CUresult perform_checked(const What& what, Move move) {
  Call driver;
  if (!driver) return driver.error();
  if (const CUresult result = check(driver, what); result != CUDA_SUCCESS) return result;
  const std::shared_lock in_use(driver->in_use);
  driver.unlock();
  move();
  return CUDA_SUCCESS;
}

template <class Element>
void fill_row(std::byte* row, std::uint64_t width, Element element) {
  std::fill_n(reinterpret_cast<Element*>(row), width / sizeof(Element), element);
}

}  // namespace

void settle_sides(Call& driver, Copy& copy) {
  for (Place* const place : {&copy.to, &copy.from}) {
    if (place->side != Side::kAny) continue;
    if (driver->space.find(place->address).reservation != nullptr)
      place->side = Side::kDevice;
    else if (driver->is_host_memory(place->address, 1))
      place->side = Side::kPinned;
  }
}

CUresult check(Call& driver, const Copy& copy) {
  if (copy.shape.is_empty()) return CUDA_SUCCESS;
  const CUresult result = check_place(driver, copy.to, copy.shape, true);
  return result == CUDA_SUCCESS ? check_place(driver, copy.from, copy.shape, false) : result;
}

CUresult check(Call& driver, const Fill& fill) {
  if (fill.to.address % fill.element_size != 0 || fill.to.row_pitch % fill.element_size != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return fill.shape.is_empty() ? CUDA_SUCCESS : check_place(driver, fill.to, fill.shape, true);
}

CUresult check_later(Call& driver, const Copy& copy) {
  if (copy.shape.is_empty()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  if (!is_future_place(driver, copy.to, copy.shape)) result = check_place(driver, copy.to, copy.shape, true);
  if (result != CUDA_SUCCESS || is_future_place(driver, copy.from, copy.shape)) return result;
  return check_place(driver, copy.from, copy.shape, false);
}

CUresult check_later(Call& driver, const Fill& fill) {
  const bool is_aligned =
      fill.to.address % fill.element_size == 0 && fill.to.row_pitch % fill.element_size == 0;
  if (is_aligned && is_future_place(driver, fill.to, fill.shape)) return CUDA_SUCCESS;
  return check(driver, fill);
}

CUresult check_read(Call& driver, const Place& place, std::uint64_t size) {
  return check_place(driver, place, {.width = size}, false);
}

CUresult perform(const Copy& copy) {
  return perform_checked(copy, [&] {
    if (copy.shape.is_empty()) return;
    for_each_row(copy.shape, copy.to, copy.from,
                 [&](std::byte* to, const std::byte* from) { std::memmove(to, from, copy.shape.width); });
  });
}

CUresult perform(const Fill& fill) {
  return perform_checked(fill, [&] {
    if (fill.shape.is_empty()) return;
    for_each_row(fill.shape, fill.to, fill.to, [&](std::byte* row, std::byte*) {
      switch (fill.element_size) {
        case 1: return fill_row(row, fill.shape.width, static_cast<std::uint8_t>(fill.element));
        case 2: return fill_row(row, fill.shape.width, static_cast<std::uint16_t>(fill.element));
        default: return fill_row(row, fill.shape.width, fill.element);
      }
    });
  });
}

namespace {

/// One end of a 2D or 3D copy as its struct gives it.
struct End {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t x, y, z, pitch, height;
};

CUresult place(const End& end, const Shape& shape, Place* out) {
  constexpr size_t kMaxPitch = 2147483647;
  if (end.type != CU_MEMORYTYPE_HOST && end.type != CU_MEMORYTYPE_DEVICE &&
      end.type != CU_MEMORYTYPE_UNIFIED) {
    return end.type == CU_MEMORYTYPE_ARRAY ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  const size_t pitch = end.pitch != 0 ? end.pitch : shape.width + end.x;
  const size_t rows = end.height != 0 ? end.height : shape.height;
  if (pitch > kMaxPitch || pitch < shape.width + end.x) return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr base =
      end.type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(end.host) : end.device;
  if (base == 0) return CUDA_ERROR_INVALID_VALUE;
  *out = {.address = base + end.z * rows * pitch + end.y * pitch + end.x,
          .side = end.type == CU_MEMORYTYPE_DEVICE ? Side::kDevice : Side::kAny,
          .row_pitch = pitch,
          .slice_pitch = rows * pitch};
  return CUDA_SUCCESS;
}

CUresult copy_of(const Shape& shape, const End& to, const End& from, Copy* out) {
  out->shape = shape;
  const CUresult result = place(to, shape, &out->to);
  return result == CUDA_SUCCESS ? place(from, shape, &out->from) : result;
}

template <class Copy3D>
CUresult copy_of(const Copy3D* c, Copy* out) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_of({.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth},
                 {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstZ, c->dstPitch,
                  c->dstHeight},
                 {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcZ, c->srcPitch,
                  c->srcHeight},
                 out);
}

/// One end as a struct gives it: where it lies, in rows of the pitch that it has.
void write_end(const Place& place, const Shape& shape, CUmemorytype* type, const void** host,
               CUdeviceptr* device, size_t* pitch, size_t* height) {
  const bool is_device = place.side == Side::kDevice;
  *type = is_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  if (is_device)
    *device = place.address;
  else
    *host = reinterpret_cast<const void*>(place.address);  // NOLINT(performance-no-int-to-ptr)
  *pitch = place.row_pitch != 0 ? place.row_pitch : shape.width;
  *height = place.slice_pitch != 0 ? place.slice_pitch / *pitch : shape.height;
}

}  // namespace

CUresult set_contexts(Copy& copy, CUcontext to, CUcontext from) {
  Call driver;
  if (!driver) return driver.error();
  const Context* const first = driver->contexts.find(to);
  const Context* const second = driver->contexts.find(from);
  if (first == nullptr || second == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  copy.to.device = driver->device(first->ordinal);
  copy.from.device = driver->device(second->ordinal);
  return CUDA_SUCCESS;
}

CUresult read_parameters(const CUDA_MEMCPY2D* c, Copy* out) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_of({.width = c->WidthInBytes, .height = c->Height},
                 {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, 0, c->dstPitch, 0},
                 {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, 0, c->srcPitch, 0},
                 out);
}

CUresult read_parameters(const CUDA_MEMCPY3D* c, Copy* out) { return copy_of(c, out); }

CUresult read_parameters(const CUDA_MEMCPY3D_PEER* c, Copy* out) {
  const CUresult result = copy_of(c, out);
  return result == CUDA_SUCCESS ? set_contexts(*out, c->dstContext, c->srcContext) : result;
}

CUDA_MEMCPY3D write_parameters(const Copy& copy) {
  CUDA_MEMCPY3D out{};
  const void* to = nullptr;
  write_end(copy.to, copy.shape, &out.dstMemoryType, &to, &out.dstDevice, &out.dstPitch, &out.dstHeight);
  out.dstHost = const_cast<void*>(to);
  write_end(copy.from, copy.shape, &out.srcMemoryType, &out.srcHost, &out.srcDevice, &out.srcPitch,
            &out.srcHeight);
  out.WidthInBytes = copy.shape.width;
  out.Height = copy.shape.height;
  out.Depth = copy.shape.depth;
  return out;
}

}  // namespace gpumem::sim
