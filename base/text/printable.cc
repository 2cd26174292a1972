#include "base/text/printable.h"

#include <cstdint>
#include <cstdio>

namespace gpumem {
namespace {

constexpr std::uint32_t kNoCharacter = 0;  // also what NUL becomes: neither is printable

/// Bytes that begin so are `length` long, and the first has `bits` of the character.
struct Form {
  std::uint32_t least;  ///< the smallest character that needs so many bytes
  std::size_t length;
  unsigned char bits;
};

Form form_of(unsigned char first) {
  if (first < 0x80) return {0, 1, 0x7f};
  if (first >= 0xc0 && first < 0xe0) return {0x80, 2, 0x1f};
  if (first >= 0xe0 && first < 0xf0) return {0x800, 3, 0x0f};
  if (first >= 0xf0 && first < 0xf8) return {0x10000, 4, 0x07};
  return {0, 0, 0};
}

// Takes the first character off. Neither longer than need be, nor half of a pair, nor beyond Unicode.
std::uint32_t take_character(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const Form form = form_of(first);
  if (form.length == 0 || form.length > text.size()) return kNoCharacter;
  std::uint32_t character = first & form.bits;
  for (std::size_t i = 1; i < form.length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0U) != 0x80) return kNoCharacter;
    character = (character << 6U) | (next & 0x3fU);
  }
  text.remove_prefix(form.length);
  const bool is_half = character >= 0xd800 && character <= 0xdfff;
  return character < form.least || is_half || character > 0x10ffff ? kNoCharacter : character;
}

// Such text shows another name than it has. U+200C and U+200D are letters' own in some languages.
bool is_hidden(std::uint32_t character) {
  const auto within = [character](std::uint32_t first, std::uint32_t last) {
    return character >= first && character <= last;
  };
  return character == 0x61c || character == 0x180e || character == 0x200b || within(0x200e, 0x200f) ||
         within(0x2028, 0x202e) || within(0x2060, 0x206f) || character == 0xfeff || within(0xfff9, 0xfffb);
}

}  // namespace

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const std::uint32_t character = take_character(text);
    if (character < 0x20 || (character >= 0x7f && character < 0xa0) || is_hidden(character)) return false;
  }
  return true;
}

std::string escape_non_ascii(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::string_view rest = text;
    const std::uint32_t character = take_character(text);
    if (text.size() == rest.size()) text.remove_prefix(1);
    char escaped[16] = "?";
    if (character >= 0x80) std::snprintf(escaped, sizeof escaped, "\\u{%X}", character);
    const bool is_plain = character >= 0x20 && character < 0x7f;
    shown += is_plain ? std::string(character == '\\' ? 2 : 1, rest.front()) : std::string(escaped);
  }
  return shown;
}

}  // namespace gpumem
