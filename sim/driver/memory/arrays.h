#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>

#include "sim/driver/handles.h"

namespace gpumem::sim {

class Driver;

/// An array, or a mipmapped one. Nothing can be written to it: it has a shape, and takes memory.
struct Array {
  std::uint64_t number = 0;  ///< the handle
  std::uint64_t context = 0;
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  unsigned levels = 0;       ///< 0: not mipmapped
  Extent* memory = nullptr;  ///< nullptr: the program maps memory there itself
  bool is_deferred() const { return (shape.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0; }
};

/// The arrays of one process. Handles are numbers that are never given out again.
/// Threads: the caller holds the driver's lock.
class Arrays {
 public:
  explicit Arrays(Driver& driver) : driver_(driver) {}

  /// `levels`  0: an array; else one that is mipmapped, of at most so many.
  /// Errors  CUDA_ERROR_INVALID_VALUE: no such shape, format or flags; CUDA_ERROR_OUT_OF_MEMORY.
  CUresult create(std::uint64_t context, const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels,
                  std::uint64_t* out);
  /// nullptr: there is none; or it is the other one of an array and a mipmapped array.
  Array* find(std::uint64_t number, bool is_mipmapped);
  void destroy(Array& array);
  void destroy_all_of(std::uint64_t context);

  /// The memory that such an array takes: whole pages of 64 KiB.
  static std::uint64_t size_of(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels);
  static constexpr std::uint64_t kPage = 65536;

 private:
  Driver& driver_;
  std::map<std::uint64_t, Array> arrays_;
  std::uint64_t last_ = 0xa0'0000'0000;  // looks like no host pointer and no small number
};

}  // namespace gpumem::sim
