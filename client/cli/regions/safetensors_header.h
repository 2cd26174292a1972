#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/regions/array_layout.h"
#include "client/cli/regions/source_file.h"

namespace gpumem::cli {

/// Where a tensor lies in a file of safetensors.
struct Tensor {
  std::string name;
  const Dtype* dtype = nullptr;
  Shape shape;
  std::uint64_t begin = 0;  ///< bytes, from the file's first
  std::uint64_t end = 0;
};

/// What a file of safetensors says of itself.
struct SafetensorsHeader {
  std::vector<Tensor> tensors;  ///< in the order of their bytes
  Texts metadata;

  /// Of a file that is open, and that anybody may have written. Errors  kInvalidArgument, with the tensor's
  /// name where it is one, and without the file's: the file is truncated or longer than it says; tensors
  /// overlap, leave bytes between them, or have another size than their shape; a header of more than 100 MB;
  /// JSON that is none, or says something twice; elements that gpumem has no type for. As SourceFile::read().
  static Result<SafetensorsHeader> read(const SourceFile& file);
  /// The file's first bytes, as the package safetensors writes them. The tensors' bytes follow in their
  /// order.
  std::string text() const;
};

}  // namespace gpumem::cli
