// Arrays are the driver's own, and charged.
#include "client/shim/calls.h"
#include "client/shim/calls/charged.h"
#include "client/shim/calls/guarded.h"
#include "client/shim/memory/array_size.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuArrayCreate)> real_create_array_v1("cuArrayCreate");
constinit RealCall<decltype(::cuArrayCreate_v2)> real_create_array("cuArrayCreate_v2");
constinit RealCall<decltype(::cuArray3DCreate)> real_create_3d_v1("cuArray3DCreate");
constinit RealCall<decltype(::cuArray3DCreate_v2)> real_create_3d("cuArray3DCreate_v2");
constinit RealCall<decltype(::cuArrayDestroy)> real_destroy_array("cuArrayDestroy");
constinit RealCall<decltype(::cuMipmappedArrayCreate)> real_create_mipmapped("cuMipmappedArrayCreate");
constinit RealCall<decltype(::cuMipmappedArrayDestroy)> real_destroy_mipmapped("cuMipmappedArrayDestroy");

/// `given`  null: it is the driver's to refuse.
template <class Handle, class Descriptor, class ShapeOf, class Forward>
CUresult create_array(const char* call, Handle* out, const Descriptor* given, const ShapeOf& shape_of,
                      const Forward& forward) {
  return guarded([&] {
    if (out == nullptr || given == nullptr) return forward();
    return forward_charged(
        call, [&](CUdevice device) { return size_of_array(shape_of(*given), device); }, forward,
        [&] { return Outside::Name(*out); });
  });
}

template <class Descriptor>
ArrayShape flat_shape(const Descriptor& given) {
  return ArrayShape::of_flat(given);
}

ArrayShape shape_of_v1(const CUDA_ARRAY3D_DESCRIPTOR_v1& given) {
  ArrayShape shape = ArrayShape::of_flat(given);
  shape.descriptor.Depth = given.Depth;
  shape.descriptor.Flags = given.Flags;
  return shape;
}

ArrayShape shape_of_v2(const CUDA_ARRAY3D_DESCRIPTOR& given) { return ArrayShape::of(given); }

}  // namespace

CUresult calls::cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  return create_array("cuArrayCreate", pHandle, pAllocateArray, flat_shape<CUDA_ARRAY_DESCRIPTOR>,
                      [&] { return real_create_array(pHandle, pAllocateArray); });
}
CUresult calls::cuArrayCreate(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR_v1* pAllocateArray) {
  return create_array("cuArrayCreate", pHandle, pAllocateArray, flat_shape<CUDA_ARRAY_DESCRIPTOR_v1>,
                      [&] { return real_create_array_v1(pHandle, pAllocateArray); });
}

CUresult calls::cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return create_array("cuArray3DCreate", pHandle, pAllocateArray, shape_of_v2,
                      [&] { return real_create_3d(pHandle, pAllocateArray); });
}
CUresult calls::cuArray3DCreate(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1* pAllocateArray) {
  return create_array("cuArray3DCreate", pHandle, pAllocateArray, shape_of_v1,
                      [&] { return real_create_3d_v1(pHandle, pAllocateArray); });
}

CUresult calls::cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                       const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                       unsigned int numMipmapLevels) {
  const auto shape_of = [&](const CUDA_ARRAY3D_DESCRIPTOR& given) {
    return ArrayShape::of(given, numMipmapLevels);
  };
  const auto forward = [&] { return real_create_mipmapped(pHandle, pMipmappedArrayDesc, numMipmapLevels); };
  return create_array("cuMipmappedArrayCreate", pHandle, pMipmappedArrayDesc, shape_of, forward);
}

CUresult calls::cuArrayDestroy(CUarray hArray) {
  return guarded([&] {
    return Process::current().outside().free(Outside::Name(hArray),
                                             [hArray] { return real_destroy_array(hArray); });
  });
}

CUresult calls::cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return guarded([&] {
    return Process::current().outside().free(Outside::Name(hMipmappedArray), [hMipmappedArray] {
      return real_destroy_mipmapped(hMipmappedArray);
    });
  });
}

}  // namespace gpumem::shim
