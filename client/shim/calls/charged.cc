#include "client/shim/calls/charged.h"
#include "client/shim/calls.h"
#include "client/shim/memory/outside/array_size.h"
#include "client/shim/real.h"

// Arrays and managed memory are the driver's own, and charged. Memory of other interfaces is charged while
// this process has it.

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

constinit RealCall<decltype(::cuImportExternalMemory)> real_import("cuImportExternalMemory");
constinit RealCall<decltype(::cuDestroyExternalMemory)> real_destroy_external("cuDestroyExternalMemory");

constinit RealCall<decltype(::cuMemAllocManaged)> real_alloc_managed("cuMemAllocManaged");

constexpr Bytes kManagedPage = kibibytes(64);  // as much as the driver takes at least

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

CUresult calls::cuImportExternalMemory(CUexternalMemory* extMem_out,
                                       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* memHandleDesc) {
  return guarded([&] {
    return forward_charged(
        "cuImportExternalMemory",
        [&](CUdevice) { return memHandleDesc != nullptr ? Bytes{memHandleDesc->size} : Bytes{}; },
        [&] { return real_import(extMem_out, memHandleDesc); }, [&] { return Outside::Name(*extMem_out); });
  });
}

CUresult calls::cuDestroyExternalMemory(CUexternalMemory extMem) {
  return guarded([&] {
    return Process::current().outside().free(Outside::Name(extMem),
                                             [extMem] { return real_destroy_external(extMem); });
  });
}

CUresult calls::cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return guarded([&] {
    return forward_charged(
        "cuMemAllocManaged",
        [&](CUdevice) { return Bytes{bytesize}.rounded_up(kManagedPage).value_or(Bytes{bytesize}); },
        [&] { return real_alloc_managed(dptr, bytesize, flags); }, [&] { return Outside::Name(*dptr); });
  });
}

}  // namespace gpumem::shim
