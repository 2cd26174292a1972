#include "sim/driver/memory/arrays.h"

#include <algorithm>

#include "sim/driver/driver.h"

namespace gpumem::sim {
namespace {

constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                                 CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT |
                                 CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
// Beyond what any device takes; their product fits 64 bits.
constexpr std::size_t kMostWide = 131072, kMostDeep = 16384;
constexpr unsigned kMostLevels = 18;

/// Of one channel; 0: a format that is not simulated.
std::uint64_t bytes_of(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4;
    default: return 0;
  }
}

bool is_valid(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const unsigned channels = shape.NumChannels;
  const bool has_channels = channels == 1 || channels == 2 || channels == 4;
  const bool has_size =
      shape.Width > 0 && shape.Width <= kMostWide && shape.Height <= kMostWide && shape.Depth <= kMostDeep;
  return has_channels && has_size && bytes_of(shape.Format) != 0 && (shape.Flags & ~kKnownFlags) == 0;
}

}  // namespace

std::uint64_t Arrays::size_of(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels) {
  const bool is_layered = (shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  std::uint64_t size = 0;
  for (unsigned level = 0; level < std::max(levels, 1U); ++level) {
    const auto side = [level](std::size_t whole) { return std::max<std::uint64_t>(whole >> level, 1); };
    const std::uint64_t depth = is_layered ? std::max<std::uint64_t>(shape.Depth, 1) : side(shape.Depth);
    size += bytes_of(shape.Format) * shape.NumChannels * side(shape.Width) * side(shape.Height) * depth;
  }
  return (size + kPage - 1) / kPage * kPage;
}

CUresult Arrays::create(std::uint64_t context, const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels,
                        std::uint64_t* out) {
  if (!is_valid(shape) || levels > kMostLevels) return CUDA_ERROR_INVALID_VALUE;
  Array made{.context = context, .shape = shape, .levels = levels};
  if ((shape.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) == 0) {
    const int ordinal = driver_.contexts.find(handle<CUcontext>(context))->ordinal;
    const CUresult taken = driver_.create_extent({.device = driver_.device(ordinal),
                                                  .kind = Kind::kMemory,
                                                  .size = size_of(shape, levels),
                                                  .handle_types = 0},
                                                 &made.memory);
    if (taken != CUDA_SUCCESS) return taken;
  }
  made.number = last_ += 16;
  *out = made.number;
  arrays_.emplace(made.number, made);
  return CUDA_SUCCESS;
}

Array* Arrays::find(std::uint64_t number, bool is_mipmapped) {
  const auto found = arrays_.find(number);
  return found != arrays_.end() && (found->second.levels != 0) == is_mipmapped ? &found->second : nullptr;
}

void Arrays::destroy(Array& array) {
  if (array.memory != nullptr) {
    array.memory->handles = 0;
    driver_.handles->drop_if_unused(*array.memory);
  }
  arrays_.erase(array.number);
}

void Arrays::destroy_all_of(std::uint64_t context) {
  for (auto it = arrays_.begin(); it != arrays_.end();) {
    Array& array = (it++)->second;
    if (array.context == context) destroy(array);
  }
}

}  // namespace gpumem::sim
