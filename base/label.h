#pragma once
#include <string>
#include <string_view>

#include "base/printable.h"
#include "gpumem/result.h"

namespace gpumem {

/// Longest label of a session or slice, in bytes.
inline constexpr std::size_t kLabelBytes = 128;

/// Errors  kInvalidArgument: too long, or cannot be shown on a terminal.
inline Result<void> check_label(std::string_view label) {
  if (label.size() <= kLabelBytes && is_printable(label)) return {};
  return Error{Code::kInvalidArgument,
               "the label is longer than " + std::to_string(kLabelBytes) + " bytes or not printable"};
}

}  // namespace gpumem
