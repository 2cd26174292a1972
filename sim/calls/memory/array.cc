// Arrays: made, ended, measured, described. What is in them is not simulated.
#include <cuda.h>

#include "calls.h"
#include "sim/calls/find_object.h"

namespace gpumem::sim {
namespace {

template <class Handle>
CUresult create(Handle* out, const CUDA_ARRAY3D_DESCRIPTOR* shape, unsigned levels) {
  return with_current([&](Call& driver, const Context& context) {
    if (out == nullptr || shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t number = 0;
    const CUresult made = driver->arrays.create(context.id, *shape, levels, &number);
    if (made == CUDA_SUCCESS) *out = handle<Handle>(number);
    return made;
  });
}

/// Of any form: their fields have the same names.
template <class Descriptor>
CUresult create_of(CUarray* out, const Descriptor* given) {
  if (given == nullptr) return create(out, nullptr, 0);
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  if constexpr (requires { given->Depth; }) {
    shape.Depth = given->Depth;
    shape.Flags = given->Flags;
  }
  shape.Width = given->Width;
  shape.Height = given->Height;
  shape.Format = given->Format;
  shape.NumChannels = given->NumChannels;
  return create(out, &shape, 0);
}

/// Finds the array for `act(driver, array)`, or answers that there is none.
template <class Handle, class Act>
CUresult with_array(Handle named, bool is_mipmapped, Act act) {
  Call driver;
  if (!driver) return driver.error();
  Array* const array = driver->arrays.find(number(named), is_mipmapped);
  return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : act(driver, *array);
}

CUresult destroy(Call& driver, Array& array) {
  driver->arrays.destroy(array);
  return CUDA_SUCCESS;
}

/// In any form, as above. As the array was made, a height of 0 included.
template <class Descriptor>
CUresult describe(Descriptor* out, CUarray named) {
  return with_array(named, false, [&](Call&, const Array& array) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = {};
    if constexpr (requires { out->Depth; }) {
      out->Depth = static_cast<decltype(out->Depth)>(array.shape.Depth);
      out->Flags = array.shape.Flags;
    }
    out->Width = static_cast<decltype(out->Width)>(array.shape.Width);
    out->Height = static_cast<decltype(out->Height)>(array.shape.Height);
    out->Format = array.shape.Format;
    out->NumChannels = array.shape.NumChannels;
    return CUDA_SUCCESS;
  });
}

/// Answers of arrays with deferred mapping alone, as cuda.h says.
CUresult requirements(Call& driver, const Array& array, CUdevice device,
                      CUDA_ARRAY_MEMORY_REQUIREMENTS* out) {
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr || !array.is_deferred()) return CUDA_ERROR_INVALID_VALUE;
  *out = {};
  out->size = Arrays::size_of(array.shape, array.levels);
  out->alignment = Arrays::kPage;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* shape) {
  return create_of(out, shape);
}
CUresult api::cuArrayCreate(CUarray* out, const CUDA_ARRAY_DESCRIPTOR_v1* shape) {
  return create_of(out, shape);
}
CUresult api::cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  return create(out, shape, 0);
}
CUresult api::cuArray3DCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1* shape) {
  return create_of(out, shape);
}
CUresult api::cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray named) {
  return describe(out, named);
}
CUresult api::cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* out, CUarray named) {
  return describe(out, named);
}
CUresult api::cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray named) {
  return describe(out, named);
}
CUresult api::cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* out, CUarray named) {
  return describe(out, named);
}
CUresult api::cuArrayDestroy(CUarray named) { return with_array(named, false, destroy); }

CUresult api::cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray named,
                                           CUdevice device) {
  return with_array(named, false, [&](Call& driver, const Array& array) {
    return requirements(driver, array, device, out);
  });
}

CUresult api::cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape,
                                     unsigned int levels) {
  return levels == 0 ? CUDA_ERROR_INVALID_VALUE : create(out, shape, levels);
}
CUresult api::cuMipmappedArrayDestroy(CUmipmappedArray named) { return with_array(named, true, destroy); }

CUresult api::cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out,
                                                    CUmipmappedArray named, CUdevice device) {
  return with_array(named, true, [&](Call& driver, const Array& array) {
    return requirements(driver, array, device, out);
  });
}

}  // namespace gpumem::sim
