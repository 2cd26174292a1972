#pragma once
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <limits>
#include <system_error>

#include "gpumem/bytes.h"

// Amounts of memory as text: what gpumem/bytes.h declares.

namespace gpumem {
namespace detail {

// No product of an amount and a unit, or a part, wraps in it.
__extension__ using Wide = unsigned __int128;

struct ByteUnit {
  std::string_view name;
  std::uint64_t size;
};
inline constexpr std::array<ByteUnit, 14> kByteUnits{{{"", 1},
                                                      {"b", 1},
                                                      {"kib", 1ULL << 10},
                                                      {"mib", 1ULL << 20},
                                                      {"gib", 1ULL << 30},
                                                      {"tib", 1ULL << 40},
                                                      {"pib", 1ULL << 50},
                                                      {"kb", 1'000},
                                                      {"mb", 1'000'000},
                                                      {"gb", 1'000'000'000},
                                                      {"tb", 1'000'000'000'000},
                                                      {"k", 1ULL << 10},
                                                      {"m", 1ULL << 20},
                                                      {"g", 1ULL << 30}}};
inline constexpr std::uint32_t kWholeInBasisPoints = 10'000;

inline Error invalid_amount(std::string_view text, std::string_view why) {
  return {Code::kInvalidArgument, "'" + std::string(text) + "' " + std::string(why)};
}

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

inline std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// A decimal number as whole and millionths, so that no amount passes through a double.
struct Decimal {
  std::uint64_t whole = 0;
  std::uint32_t millionths = 0;
};

// Splits `text` into its leading decimal number and the rest, which names the unit.
inline Result<std::pair<Decimal, std::string>> split_number(std::string_view text) {
  const std::string_view body = trimmed(text);
  Decimal number;
  const char* const end = body.data() + body.size();
  auto [at, error] = std::from_chars(body.data(), end, number.whole);
  if (error == std::errc::result_out_of_range) return invalid_amount(text, "is more than 2^64-1");
  if (error != std::errc()) {
    return invalid_amount(text, "is not an amount; write for example 512MiB, 24GiB or 4096");
  }
  if (at != end && *at == '.') {
    std::uint32_t scale = 100'000;
    const char* const first = ++at;
    for (; at != end && std::isdigit(static_cast<unsigned char>(*at)); ++at, scale /= 10) {
      if (scale == 0) return invalid_amount(text, "has more than six decimals");
      number.millionths += static_cast<std::uint32_t>(*at - '0') * scale;
    }
    if (at == first) return invalid_amount(text, "has no digits after its point");
  }
  return std::pair(number, lowered(trimmed({at, static_cast<std::size_t>(end - at)})));
}

}  // namespace detail

inline std::string to_string(Bytes bytes) {
  constexpr std::array<std::string_view, 6> kNames{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (unit + 1 < kNames.size() && bytes.count >> (10 * (unit + 1)) != 0) ++unit;
  const std::uint64_t size = 1ULL << (10 * unit);
  const std::uint64_t whole = bytes.count / size;
  const std::uint64_t hundredths =
      static_cast<std::uint64_t>(static_cast<double>(bytes.count % size) / static_cast<double>(size) * 100);
  std::string text = std::to_string(whole);
  if (hundredths != 0) {
    std::array<char, 8> decimals{};
    std::snprintf(decimals.data(), decimals.size(), ".%02u", static_cast<unsigned>(hundredths));
    text += decimals.data();
    if (text.back() == '0') text.pop_back();
  }
  return text + std::string(kNames[unit]);
}

inline Result<Bytes> parse_bytes(std::string_view text) {
  auto split = detail::split_number(text);
  if (!split) return split.error();
  const auto& [number, name] = *split;
  const detail::ByteUnit* unit = nullptr;
  for (const detail::ByteUnit& known : detail::kByteUnits) {
    if (known.name == name) unit = &known;
  }
  if (unit == nullptr) {
    return detail::invalid_amount(text, "has an unknown unit; use B, KiB, MiB, GiB, TiB (or KB, MB, GB, TB)");
  }
  if (unit->size == 1 && number.millionths != 0)
    return detail::invalid_amount(text, "is not a whole number of bytes");
  // At most 2^64 * 2^50 and 10^6 * 2^50: neither wraps.
  const auto total = static_cast<detail::Wide>(number.whole) * unit->size +
                     static_cast<detail::Wide>(number.millionths) * unit->size / 1'000'000;
  if (total > std::numeric_limits<std::uint64_t>::max())
    return detail::invalid_amount(text, "is more than 2^64-1 bytes");
  return Bytes{static_cast<std::uint64_t>(total)};
}

inline Bytes Amount::of(Bytes whole) const {
  switch (kind_) {
    case Kind::kAbsolute: return bytes_;
    case Kind::kAllBut: return whole.minus(bytes_);
    case Kind::kPercent: break;
  }
  return {static_cast<std::uint64_t>(static_cast<detail::Wide>(whole.count) * basis_points_ /
                                     detail::kWholeInBasisPoints)};
}

inline std::string Amount::text() const {
  switch (kind_) {
    case Kind::kAbsolute: return to_string(bytes_);
    case Kind::kAllBut: return "all-but " + to_string(bytes_);
    case Kind::kPercent: break;
  }
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%g%%", basis_points_ / 100.0);
  return text.data();
}

inline Result<Amount> parse_amount(std::string_view text) {
  const std::string_view body = detail::trimmed(text);
  constexpr std::string_view kAllButPrefix = "all-but";
  if (body == "all") return Amount::percent(detail::kWholeInBasisPoints);
  if (body.starts_with(kAllButPrefix)) {
    auto bytes = parse_bytes(body.substr(kAllButPrefix.size()));
    if (!bytes) return bytes.error();
    return Amount::all_but(*bytes);
  }
  if (!body.ends_with('%')) {
    auto bytes = parse_bytes(body);
    if (!bytes) return bytes.error();
    return Amount::absolute(*bytes);
  }
  auto split = detail::split_number(body.substr(0, body.size() - 1));
  if (!split) return split.error();
  const auto& [number, rest] = *split;
  if (!rest.empty()) return detail::invalid_amount(text, "is not a percentage");
  if (number.whole > 100 || (number.whole == 100 && number.millionths != 0))
    return detail::invalid_amount(text, "is more than 100%");
  return Amount::percent(static_cast<std::uint32_t>(number.whole * 100 + number.millionths / 10'000));
}

}  // namespace gpumem
