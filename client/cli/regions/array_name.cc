#include "client/cli/regions/array_name.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/printable.h"

namespace gpumem::cli {
namespace {

constexpr std::size_t kMostNameBytes = 512;

struct Characters {
  std::uint32_t first;
  std::uint32_t last;
};

// Unicode's categories Cc, Cf, Zl and Zp, of version 15, in their order. UTF-8 has none of Cs.
constexpr std::array<Characters, 23> kUnseen{{
    {0x0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},
    {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x180e, 0x180e},
    {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x2064},   {0x2066, 0x206f},   {0xfeff, 0xfeff},
    {0xfff9, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3},
    {0x1d173, 0x1d17a}, {0xe0001, 0xe0001}, {0xe0020, 0xe007f},
}};

// The first byte has as many ones at its head as the character has bytes.
std::uint32_t take_utf8(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const auto ones = static_cast<std::size_t>(std::countl_one(first));
  const std::size_t length = std::min(std::max<std::size_t>(ones, 1), text.size());
  std::uint32_t character = first & (0xffU >> (ones == 0 ? 0 : ones + 1));
  for (std::size_t i = 1; i < length; ++i)
    character = character << 6U | (static_cast<unsigned char>(text[i]) & 0x3fU);
  text.remove_prefix(length);
  return character;
}

bool has_unseen(std::string_view text) {
  while (!text.empty()) {
    const std::uint32_t character = take_utf8(text);
    const auto* range = std::ranges::lower_bound(kUnseen, character, {}, &Characters::last);
    if (range != kUnseen.end() && character >= range->first) return true;
  }
  return false;
}

}  // namespace

std::string shown_name(std::string_view name) {
  constexpr std::size_t kMostShown = 80;
  const std::string shown = to_printable(std::string(name.substr(0, kMostShown)));
  return "'" + shown + (name.size() > kMostShown ? "...'" : "'");
}

Result<void> check_array_name(std::string_view name, std::string_view what) {
  const auto refuse = [&](const std::string& why) {
    return Error{Code::kInvalidArgument,
                 "the name of " + std::string(what) + ", " + shown_name(name) + ", " + why};
  };
  if (name.empty()) return refuse("is empty");
  if (has_unseen(name)) return refuse("has characters that nobody sees");
  if (name.size() > kMostNameBytes)
    return refuse("has more than " + std::to_string(kMostNameBytes) + " bytes");
  return {};
}

}  // namespace gpumem::cli
