#pragma once
#include <string_view>

#include "client/cli/regions/safetensors_header.h"

namespace gpumem::cli {

/// The JSON of a file's header, read as it comes, so that what it takes is bounded by the text's length.
/// Tensors begin and end as it says, from the header's end on, each as large as its shape, in the order of
/// the text. Errors  as SafetensorsHeader::read().
Result<SafetensorsHeader> parse_safetensors(std::string_view text);

}  // namespace gpumem::cli
