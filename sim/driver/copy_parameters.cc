#include "sim/driver/copy_parameters.h"

#include "sim/driver/driver.h"

namespace gpumem::sim {
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
