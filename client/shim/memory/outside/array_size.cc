#include "client/shim/memory/outside/array_size.h"

#include <algorithm>

#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuDeviceGetAttribute)> real_device_attribute("cuDeviceGetAttribute");
constinit RealCall<CUresult(CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*)> real_make_array("cuArray3DCreate_v2");
constinit RealCall<decltype(::cuArrayDestroy)> real_end_array("cuArrayDestroy");
constinit RealCall<decltype(::cuArrayGetMemoryRequirements)> real_needs_of_array(
    "cuArrayGetMemoryRequirements");
constinit RealCall<decltype(::cuMipmappedArrayCreate)> real_make_mipmapped("cuMipmappedArrayCreate");
constinit RealCall<decltype(::cuMipmappedArrayDestroy)> real_end_mipmapped("cuMipmappedArrayDestroy");
constinit RealCall<decltype(::cuMipmappedArrayGetMemoryRequirements)> real_needs_mipmapped(
    "cuMipmappedArrayGetMemoryRequirements");

constexpr Bytes kPage{65536};
constexpr std::uint64_t kMost = ~std::uint64_t{0} - kPage.count;

bool is_mapped_by_program(const ArrayShape& shape) {
  return (shape.descriptor.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
}

bool can_defer(CUdevice device) {
  int can = 0;
  const CUresult told =
      real_device_attribute(&can, CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, device);
  return told == CUDA_SUCCESS && can != 0;
}

/// Zero: the driver does not tell.
template <class Handle, class Make, class Needs, class End>
Bytes asked_size(CUdevice device, const Make& make, Needs& needs, End& end) {
  Handle twin = nullptr;
  if (make(&twin) != CUDA_SUCCESS) return {};
  CUDA_ARRAY_MEMORY_REQUIREMENTS needed{};
  const CUresult told = needs(&needed, twin, device);
  (void)end(twin);
  return told == CUDA_SUCCESS ? Bytes{needed.size} : Bytes{};
}

/// Bytes of a square of `side` by `side` elements.
struct Element {
  std::uint64_t bytes = 0;
  std::uint64_t side = 1;
};

Element element_of(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const std::uint64_t channels = shape.NumChannels;
  switch (static_cast<unsigned>(shape.Format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return {channels};
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return {2 * channels};
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return {4 * channels};
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM: return {8, 4};
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB: return {16, 4};
    default: return {16};
  }
}

std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t all = 0;
  return __builtin_mul_overflow(a, b, &all) ? kMost : std::min(all, kMost);
}

std::uint64_t size_of_level(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned level) {
  const Element element = element_of(shape);
  const bool is_layered = (shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  const auto side = [level](std::uint64_t whole) { return std::max<std::uint64_t>(whole >> level, 1); };
  const auto squares = [&](std::uint64_t whole) { return (side(whole) + element.side - 1) / element.side; };
  const std::uint64_t depth = is_layered ? std::max<std::uint64_t>(shape.Depth, 1) : side(shape.Depth);
  return product(product(squares(shape.Width), squares(shape.Height)), product(depth, element.bytes));
}

}  // namespace

Bytes estimated_size(const ArrayShape& shape) {
  constexpr unsigned kMostLevels = 64;
  std::uint64_t all = 0;
  for (unsigned level = 0; level < std::clamp(shape.levels, 1U, kMostLevels); ++level) {
    const std::uint64_t more = size_of_level(shape.descriptor, level);
    all = more > kMost - all ? kMost : all + more;
  }
  return Bytes{all}.rounded_up(kPage).value_or(Bytes{all});
}

Bytes size_of_array(const ArrayShape& shape, CUdevice device) {
  if (is_mapped_by_program(shape)) return {};
  Bytes told;
  if (can_defer(device)) {
    CUDA_ARRAY3D_DESCRIPTOR deferred = shape.descriptor;
    deferred.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    const auto make = [&](CUarray* out) { return real_make_array(out, &deferred); };
    const auto make_mipmapped = [&](CUmipmappedArray* out) {
      return real_make_mipmapped(out, &deferred, shape.levels);
    };
    told = shape.levels == 0 ? asked_size<CUarray>(device, make, real_needs_of_array, real_end_array)
                             : asked_size<CUmipmappedArray>(device, make_mipmapped, real_needs_mipmapped,
                                                            real_end_mipmapped);
  }
  return told.is_zero() ? estimated_size(shape) : told;
}

}  // namespace gpumem::shim
