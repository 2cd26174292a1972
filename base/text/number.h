#pragma once
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace gpumem {

/// The number that `text` is, in decimal and without anything beside it. Nothing: it is none, or not in
/// Number's range.
template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, number);
  return failed == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

}  // namespace gpumem
