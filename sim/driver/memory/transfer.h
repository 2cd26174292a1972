#pragma once
#include <cuda.h>

#include <cstdint>

namespace gpumem::sim {

class Call;

/// What may lie at an end of a copy.
enum class Side : std::uint8_t {
  kDevice,  ///< device memory, else the copy is refused
  kAny,     ///< device memory if the address is such, else the host's
  kPinned,  ///< host memory that devices reach, else the copy is refused
};

/// Rows of bytes in memory: `height` x `depth` of them, `width` bytes each.
struct Shape {
  std::uint64_t width = 0, height = 1, depth = 1;

  bool is_empty() const { return width == 0 || height == 0 || depth == 0; }
};

/// Where a shape lies. Pitches are in bytes and do not matter where there is only one row or slice.
struct Place {
  std::uint64_t address = 0;
  Side side = Side::kAny;
  std::uint64_t row_pitch = 0, slice_pitch = 0;
  std::uint32_t device = 0;  ///< the device that accesses it: index in the machine
};

struct Copy {
  Place to, from;
  Shape shape;
};

/// Rows that are filled with an element of 1, 2 or 4 bytes; the width is a multiple of it.
struct Fill {
  Place to;
  Shape shape;
  std::uint32_t element = 0;
  unsigned element_size = 1;
};

/// Fixes what kAny stands for: memory that is gone when it is to be copied is not the host's then.
void settle_sides(Call& driver, Copy& copy);
inline void settle_sides(Call&, Fill&) {}

/// Success if the devices may do it now. Errors  CUDA_ERROR_INVALID_VALUE: not device memory where it must
/// be, or not all mapped, or the rows overlap; CUDA_ERROR_ILLEGAL_ADDRESS: access is lacking.
CUresult check(Call& driver, const Copy& copy);
CUresult check(Call& driver, const Fill& fill);
/// Checks work of a graph, which is done later: memory of graphs may not be mapped yet.
CUresult check_later(Call& driver, const Copy& copy);
CUresult check_later(Call& driver, const Fill& fill);
/// Checks a read of `size` bytes at `place`.
CUresult check_read(Call& driver, const Place& place, std::uint64_t size);

/// Checks once more and does it, with the driver unlocked while bytes move; memory is not unmapped meanwhile.
CUresult perform(const Copy& copy);
CUresult perform(const Fill& fill);

/// The copy that a struct of the program's means; devices are not set but by the third.
/// Errors  CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_NOT_SUPPORTED: an array.
CUresult read_parameters(const CUDA_MEMCPY2D* parameters, Copy* out);
CUresult read_parameters(const CUDA_MEMCPY3D* parameters, Copy* out);
/// Errors  also CUDA_ERROR_INVALID_CONTEXT.
CUresult read_parameters(const CUDA_MEMCPY3D_PEER* parameters, Copy* out);

/// Sets the devices of both ends. Errors  CUDA_ERROR_INVALID_CONTEXT.
CUresult set_contexts(Copy& copy, CUcontext to, CUcontext from);

/// A struct that means `copy`.
CUDA_MEMCPY3D write_parameters(const Copy& copy);

}  // namespace gpumem::sim
