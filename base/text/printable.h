#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "gpumem/result.h"

namespace gpumem {

/// Whether `text`, which comes from others, can be shown on a terminal and sent in a message as it is: UTF-8
/// (RFC 3629) without control characters (C0, DEL, C1), and without characters that are not seen and change
/// how others are shown or split into lines: marks of direction, separators, zero width ones that join
/// nothing.
bool is_printable(std::string_view text);

/// `text` with a question mark for every byte that is no printable ASCII: for files and logs.
inline std::string printable_ascii(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return text;
}

/// `text` if it is printable, else what printable_ascii() makes of it.
inline std::string to_printable(std::string text) {
  return is_printable(text) ? text : printable_ascii(std::move(text));
}

/// `text` in printable ASCII that shows what it is: other characters as `\u{AD}`, a backslash as two, and
/// what is no UTF-8 as question marks. For names that others chose: some characters are not seen or look like
/// others, so that a name could pass for another's.
std::string escape_non_ascii(std::string_view text);

/// Longest label of a session or slice, in bytes.
inline constexpr std::size_t kLabelBytes = 128;

/// Errors  kInvalidArgument: too long, or cannot be shown on a terminal.
inline Result<void> check_label(std::string_view label) {
  if (label.size() <= kLabelBytes && is_printable(label)) return {};
  return Error{Code::kInvalidArgument,
               "the label is longer than " + std::to_string(kLabelBytes) + " bytes or not printable"};
}

}  // namespace gpumem
