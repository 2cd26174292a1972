#pragma once
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem::cli {

/// Whether an array, or a text of the metadata, may have this name, which is UTF-8: 1 to 512 bytes, and
/// nothing that nobody sees. As gpumem.layout (Python) has it, which reads the name. `what`  it is of.
/// Errors  kInvalidArgument.
Result<void> check_array_name(std::string_view name, std::string_view what);

/// The name for messages: in quotes, printable, and not long.
std::string shown_name(std::string_view name);

}  // namespace gpumem::cli
