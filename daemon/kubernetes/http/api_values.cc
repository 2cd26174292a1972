#include "daemon/kubernetes/http/api_values.h"

#include <array>
#include <cctype>
#include <limits>
#include <optional>

#include "base/text/number.h"

namespace gpumem::kubernetes {
namespace {

constexpr int kDeepest = 100;  // objects of Kubernetes have a tenth of it

using Wide = unsigned __int128;

constexpr std::uint64_t kNano = 1'000'000'000;
constexpr std::string_view kUnits = "KMGTPE";

// A number's factor and divisor.
struct Scale {
  std::uint64_t times = 1;
  std::uint64_t over = 1;
};

std::uint64_t power_of_ten(int exponent) {
  std::uint64_t power = 1;
  for (; exponent > 0; --exponent) power *= 10;
  return power;
}

std::optional<Scale> exponent_scale(std::string_view digits) {
  if (digits.starts_with('+')) digits.remove_prefix(1);
  const auto exponent = whole_number<int>(digits);
  if (!exponent || *exponent < -9 || *exponent > 18) return {};
  return *exponent < 0 ? Scale{1, power_of_ten(-*exponent)} : Scale{power_of_ten(*exponent), 1};
}

std::optional<Scale> scale_of(std::string_view suffix) {
  if (suffix.empty()) return Scale{};
  if (suffix == "m") return Scale{1, 1000};
  if (suffix == "u") return Scale{1, 1'000'000};
  if (suffix == "n") return Scale{1, kNano};
  if (suffix == "k") return Scale{1000, 1};
  const std::size_t unit = kUnits.find(suffix[0]);
  if (suffix.size() == 2 && suffix[1] == 'i' && unit != std::string_view::npos)
    return Scale{std::uint64_t{1} << (10 * (unit + 1)), 1};
  if (suffix.size() == 1 && unit != std::string_view::npos && unit > 0)
    return Scale{power_of_ten(static_cast<int>(3 * (unit + 1))), 1};
  if (suffix.size() > 1 && (suffix[0] == 'e' || suffix[0] == 'E')) return exponent_scale(suffix.substr(1));
  return {};
}

// The number in front of `text`, in billionths, rounded up; it is taken off. Nothing: none, or too large.
std::optional<Wide> take_number(std::string_view& text) {
  Wide value = 0;
  int fraction = -1;  // digits behind the point; -1: no point yet
  bool rest = false;
  bool digits = false;
  for (; !text.empty(); text.remove_prefix(1)) {
    if (text[0] == '.' && fraction < 0) {
      fraction = 0;
      continue;
    }
    if (std::isdigit(static_cast<unsigned char>(text[0])) == 0) break;
    digits = true;
    const unsigned digit = static_cast<unsigned>(text[0] - '0');
    if (fraction >= 9) {
      rest = rest || digit != 0;
      continue;
    }
    if (fraction >= 0) ++fraction;
    value = value * 10 + digit;
    if (value > Wide{std::numeric_limits<std::uint64_t>::max()} * kNano) return {};
  }
  if (!digits) return {};
  for (int i = std::max(fraction, 0); i < 9; ++i) value *= 10;
  return value + (rest ? 1 : 0);
}

}  // namespace

const Json& field(const Json& object, std::initializer_list<std::string_view> path) {
  static const Json kNone;
  const Json* at = &object;
  for (const std::string_view name : path) {
    if (!at->is_object()) return kNone;
    const auto found = at->find(name);
    if (found == at->end()) return kNone;
    at = &*found;
  }
  return *at;
}

std::string text_field(const Json& object, std::initializer_list<std::string_view> path) {
  const auto* text = field(object, path).get_ptr<const std::string*>();
  return text == nullptr ? std::string() : *text;
}

std::uint64_t count_field(const Json& object, std::initializer_list<std::string_view> path) {
  const Json& value = field(object, path);
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}

const Json::array_t& array_field(const Json& object, std::initializer_list<std::string_view> path) {
  static const Json::array_t kNone;
  const auto* array = field(object, path).get_ptr<const Json::array_t*>();
  return array == nullptr ? kNone : *array;
}

// Deeper nesting would overflow the stack when the value is copied or written.
Json parse_json(std::string_view text) {
  bool is_too_deep = false;
  Json parsed = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, Json&) {
        is_too_deep = is_too_deep || depth > kDeepest;
        return !is_too_deep;
      },
      false);
  return is_too_deep ? Json(Json::value_t::discarded) : parsed;
}

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Result<Bytes> parse_quantity(std::string_view text) {
  const Error wrong{Code::kInvalidArgument,
                    "\"" + std::string(text) + "\" is no amount of bytes, such as 8Gi"};
  std::string_view rest = text.starts_with('+') ? text.substr(1) : text;
  const std::optional<Wide> number = take_number(rest);
  const std::optional<Scale> scale = scale_of(rest);
  if (!number || !scale) return wrong;
  if (*number > ~Wide{0} / scale->times) return wrong;
  const Wide over = Wide{kNano} * scale->over;
  const Wide product = *number * scale->times;
  const Wide bytes = product / over + (product % over == 0 ? 0 : 1);
  if (bytes > std::numeric_limits<std::uint64_t>::max()) return wrong;
  return Bytes{static_cast<std::uint64_t>(bytes)};
}

std::string quantity_text(Bytes bytes) {
  std::uint64_t count = bytes.count;
  std::size_t unit = 0;
  while (count != 0 && count % 1024 == 0 && unit < kUnits.size()) {
    count /= 1024;
    ++unit;
  }
  return std::to_string(count) + (unit == 0 ? "" : std::string{kUnits[unit - 1], 'i'});
}

}  // namespace gpumem::kubernetes
