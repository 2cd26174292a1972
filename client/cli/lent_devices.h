#pragma once
#include <string>

#include "gpumem/result.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::cli {

/// The UUID of the lent device that `text` means: a UUID, the beginning of one, or its place in `gpumem
/// status`, from 0. Of `status`, the UUIDs suffice. Errors  kNotFound: none, or more than one; says which
/// there are.
Result<std::string> find_device(const v1::GetStatusResponse& status, const std::string& text);

/// The first lent device that a program sees, of those that CUDA_VISIBLE_DEVICES names (empty: all).
/// Errors  kNotFound: none is lent.
Result<std::string> first_visible(const v1::GetStatusResponse& status, const std::string& visible);

}  // namespace gpumem::cli
