#pragma once
#include <cuda.h>

#include "gpumem/bytes.h"

namespace gpumem::shim {

/// An array to be made.
struct ArrayShape {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  unsigned levels = 0;  ///< 0: it is not mipmapped

  static ArrayShape of(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels = 0) {
    return {descriptor, levels};
  }
  /// Of a flat one, in any form of its description.
  template <class Flat>
  static ArrayShape of_flat(const Flat& flat) {
    ArrayShape shape;
    shape.descriptor.Width = flat.Width;
    shape.descriptor.Height = flat.Height;
    shape.descriptor.Format = flat.Format;
    shape.descriptor.NumChannels = flat.NumChannels;
    return shape;
  }
};

/// The memory that the driver takes on `device` for an array in the current context: the size that the driver
/// states for the same array with deferred mapping, else estimated_size(). Zero: the program maps memory
/// there itself.
Bytes size_of_array(const ArrayShape& shape, CUdevice device);

/// Its elements, in pages of 64 KiB. Of formats that are not known, four channels of 32 bits: no format has
/// more. What does not fit 64 bits is all that does.
Bytes estimated_size(const ArrayShape& shape);

}  // namespace gpumem::shim
