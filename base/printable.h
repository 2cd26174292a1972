#pragma once
#include <algorithm>
#include <string>
#include <string_view>

namespace gpumem {

/// Whether `text`, which comes from others, can be shown on a terminal as it is: no control characters.
inline bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

/// `text` with a question mark for every byte that is no printable ASCII: for files and logs.
inline std::string printable_ascii(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return text;
}

}  // namespace gpumem
