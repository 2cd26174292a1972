#pragma once
#include <string>
#include <string_view>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// Reads an amount of bytes as Kubernetes writes it: `8Gi`, `1500M`, `1e9`, `100m`. A fraction of a byte
/// counts as a whole one. Errors  kInvalidArgument: not a quantity, negative, over 2^64-1.
Result<Bytes> parse_quantity(std::string_view text);

/// The form that the API server stores: the largest binary unit that leaves a whole number, `80Gi`.
std::string quantity_text(Bytes bytes);

}  // namespace gpumem::kubernetes
