#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem {

/// A number of bytes. Arithmetic that could wrap is checked: `plus` answers nothing instead of wrapping.
struct Bytes {
  std::uint64_t count = 0;

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr bool is_zero() const { return count == 0; }

  /// The sum, or nothing if it does not fit.
  constexpr std::optional<Bytes> plus(Bytes other) const {
    const std::uint64_t sum = count + other.count;
    return sum < count ? std::nullopt : std::optional(Bytes{sum});
  }
  /// This less `other`, never below zero.
  constexpr Bytes minus(Bytes other) const { return {count > other.count ? count - other.count : 0}; }
  /// The next multiple of `unit` (not zero), or nothing if that does not fit.
  constexpr std::optional<Bytes> rounded_up(Bytes unit) const {
    const std::uint64_t rest = count % unit.count;
    return rest == 0 ? std::optional(*this) : plus({unit.count - rest});
  }
  constexpr Bytes rounded_down(Bytes unit) const { return {count - count % unit.count}; }

  /// Sum and difference for amounts known to fit: the caller's invariant, trapped when broken.
  constexpr Bytes& operator+=(Bytes other) {
    if (__builtin_add_overflow(count, other.count, &count)) __builtin_trap();
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    if (other.count > count) __builtin_trap();
    count -= other.count;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return a += b; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return a -= b; }
};

constexpr Bytes kibibytes(std::uint64_t n) { return {n << 10}; }
constexpr Bytes mebibytes(std::uint64_t n) { return {n << 20}; }
constexpr Bytes gibibytes(std::uint64_t n) { return {n << 30}; }

/// `512MiB`, `1.5GiB`, `0B`: the largest binary unit, at most two decimals; exact amounts print exactly.
inline std::string to_string(Bytes bytes);

/// Reads `4096`, `512MiB`, `1.5GiB`, `10 GB` (decimal units too; case does not matter); what
/// remains below one byte (`1.1GiB`) is dropped.
/// Errors  kInvalidArgument: no number, unknown unit, negative, a fraction of plain bytes, over 2^64-1.
inline Result<Bytes> parse_bytes(std::string_view text);

/// An amount that may be relative to a whole: `24GiB`, `25%` or `all-but 2GiB`.
class Amount {
 public:
  enum class Kind { kAbsolute, kPercent, kAllBut };

  static constexpr Amount absolute(Bytes bytes) { return {Kind::kAbsolute, bytes, 0}; }
  /// `basis_points`  hundredths of a percent, at most 10,000.
  static constexpr Amount percent(std::uint32_t basis_points) { return {Kind::kPercent, {}, basis_points}; }
  static constexpr Amount all_but(Bytes bytes) { return {Kind::kAllBut, bytes, 0}; }

  constexpr Kind kind() const { return kind_; }
  /// The amount of `whole` that is meant; all-but more than there is gives zero.
  inline Bytes of(Bytes whole) const;
  bool operator==(const Amount&) const = default;
  inline std::string text() const;

 private:
  constexpr Amount(Kind kind, Bytes bytes, std::uint32_t basis_points)
      : kind_(kind), bytes_(bytes), basis_points_(basis_points) {}

  Kind kind_;
  Bytes bytes_;
  std::uint32_t basis_points_;
};

/// Reads an Amount.
/// Errors  kInvalidArgument: as parse_bytes; more than 100%.
inline Result<Amount> parse_amount(std::string_view text);

}  // namespace gpumem

#include "gpumem/detail/bytes_text.h"
