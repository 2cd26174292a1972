// PTX: what its declarations take.
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/device_code.h"

namespace gpumem {
namespace {

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$'; }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// The declarations at the level of the module, one after the other, without comments, strings, bodies and
/// initializers.
class Statements {
 public:
  explicit Statements(std::string_view text) : text_(text) {}

  std::optional<std::string> next() {
    std::string statement;
    bool is_initializer = false, is_length = false;
    while (at_ < text_.size()) {
      if (skip_comment() || skip_string()) {
        statement += ' ';
        continue;
      }
      const char c = text_[at_++];
      if (c == ';') return statement;
      if (c == '{' || (c == '(' && !is_length)) {
        skip_to_match(c, c == '{' ? '}' : ')');
        if (c == '{' && !is_initializer) statement.clear();  // a function
        continue;
      }
      if (c == '=' || c == ',') is_initializer = c == '=';
      if (c == '[' || c == ']') is_length = c == '[' && !is_initializer;
      if (!is_initializer) statement += c;
    }
    return std::nullopt;
  }

 private:
  void skip_past(std::size_t end, std::size_t size) {
    at_ = end == std::string_view::npos ? text_.size() : end + size;
  }
  // The newline behind a comment stays. So does that of `#line`, which is the preprocessor's.
  bool skip_comment() {
    const std::string_view two = text_.substr(at_, 2);
    if (two == "/*")
      skip_past(text_.find("*/", at_ + 2), 2);
    else if (two == "//" || two.starts_with('#'))
      skip_past(text_.find('\n', at_), 0);
    else
      return false;
    return true;
  }
  // One that is not closed ends with its line.
  bool skip_string() {
    if (text_[at_] != '"') return false;
    for (++at_; at_ < text_.size() && text_[at_] != '\n';) {
      const char c = text_[at_++];
      if (c == '"') break;
      if (c == '\\' && at_ < text_.size() && text_[at_] != '\n') ++at_;
    }
    return true;
  }
  void skip_to_match(char open, char close) {
    for (int depth = 1; at_ < text_.size() && depth > 0;) {
      if (skip_comment() || skip_string()) continue;
      const char c = text_[at_++];
      depth += c == open ? 1 : c == close ? -1 : 0;
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// The length of an array: literals, WARP_SZ, + - * / % << >> and parentheses, with the precedence of C.
class Length {
 public:
  /// None: it is something else, or has no value.
  static std::optional<std::uint64_t> parse(std::string_view text) {
    Length length(text);
    const auto value = length.shifted();
    return length.front() == '\0' ? value : std::nullopt;
  }

 private:
  using Value = std::optional<std::uint64_t>;
  static constexpr int kDeepest = 64;

  explicit Length(std::string_view text) : text_(text) {}

  // The next character that is not blank; NUL: the text ends.
  char front() {
    while (!text_.empty() && is_blank(text_.front())) text_.remove_prefix(1);
    return text_.empty() ? '\0' : text_.front();
  }
  bool take(std::string_view word) {
    front();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }

  Value shifted() {
    Value value = sum();
    while (value) {
      const bool is_left = take("<<");
      if (!is_left && !take(">>")) break;
      const Value by = sum();
      if (!by || *by >= 64) return std::nullopt;
      value = is_left ? capped_product(*value, std::uint64_t{1} << *by) : *value >> *by;
    }
    return value;
  }
  Value sum() {
    Value value = product();
    while (value && (front() == '+' || front() == '-')) {
      const bool is_minus = take("-");
      if (!is_minus) take("+");
      const Value other = product();
      if (!other || (is_minus && *other > *value)) return std::nullopt;
      value = is_minus ? *value - *other : capped_sum(*value, *other);
    }
    return value;
  }
  Value product() {
    Value value = operand();
    while (value && (front() == '*' || front() == '/' || front() == '%')) {
      const char sign = front();
      text_.remove_prefix(1);
      const Value other = operand();
      if (!other || (sign != '*' && *other == 0)) return std::nullopt;
      value = sign == '*' ? capped_product(*value, *other) : sign == '/' ? *value / *other : *value % *other;
    }
    return value;
  }
  Value operand() {
    if (take("WARP_SZ")) return 32;
    if (!take("(")) return literal();
    if (++depth_ > kDeepest) return std::nullopt;
    const Value value = shifted();
    --depth_;
    return take(")") ? value : std::nullopt;
  }
  Value literal() {
    if (!is_decimal(front())) return std::nullopt;
    int base = 10;
    if (take("0x") || take("0X"))
      base = 16;
    else if (take("0b") || take("0B"))
      base = 2;
    else if (text_.front() == '0')
      base = 8;
    std::uint64_t value = 0;
    const auto [rest, failed] = std::from_chars(text_.data(), text_.data() + text_.size(), value, base);
    if (failed == std::errc::invalid_argument) return std::nullopt;
    text_.remove_prefix(static_cast<std::size_t>(rest - text_.data()));
    if (text_.starts_with('U')) text_.remove_prefix(1);
    return failed == std::errc::result_out_of_range ? kMostBytes : value;
  }

  std::string_view text_;
  int depth_ = 0;
};

// Of `.u32`, `.f16x2` and their like; 0: it is no type.
std::uint64_t bytes_of_type(std::string_view word) {
  const auto digits = word.find_first_of("0123456789");
  if (digits == std::string_view::npos) return 0;
  const std::string_view name = word.substr(0, digits);
  if (name != ".b" && name != ".u" && name != ".s" && name != ".f" && name != ".bf") return 0;
  std::uint64_t bits = 0, times = 1;
  const char* const end = word.data() + word.size();
  const char* const rest = std::from_chars(word.data() + digits, end, bits).ptr;
  if (rest != end && *rest == 'x') std::from_chars(rest + 1, end, times);
  return capped_product(bits, times) / 8;
}

// `name[3][4]`: 12, and so is `name<12>`. A length that is not known, or has no end, has no bytes.
std::uint64_t count_in(std::string_view declarator) {
  std::uint64_t count = 1;
  for (std::size_t at = 0;;) {
    const auto open = declarator.find_first_of("[<", at);
    if (open == std::string_view::npos) return count;
    const auto close = declarator.find(declarator[open] == '[' ? ']' : '>', open);
    if (close == std::string_view::npos) return 0;
    const auto length = Length::parse(declarator.substr(open + 1, close - open - 1));
    count = capped_product(count, length.value_or(0));
    at = close + 1;
  }
}

/// The words before a declaration's names: `.visible .global .align 4 .b8`.
class Words {
 public:
  explicit Words(std::string_view statement) : rest_(statement) {}

  /// Empty: there are no more; rest() begins with a name.
  std::string_view next() {
    rest_.remove_prefix(static_cast<std::size_t>(std::ranges::find_if_not(rest_, is_blank) - rest_.begin()));
    if (rest_.empty() || (rest_.front() != '.' && !is_decimal(rest_.front()))) return {};
    std::size_t size = 1;
    while (size < rest_.size() && (is_letter(rest_[size]) || is_decimal(rest_[size]))) ++size;
    const std::string_view word = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return word;
  }
  /// Of a directive that no semicolon ends, such as `.version 8.0` or `.target sm_90, debug`.
  void skip_arguments() {
    const auto is_word = [](char first, char second) { return first == '.' && is_letter(second); };
    const auto next = std::ranges::adjacent_find(rest_, is_word);
    rest_.remove_prefix(static_cast<std::size_t>(next - rest_.begin()));
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

std::uint64_t bytes_declared(std::string_view statement) {
  bool is_global = false;
  std::uint64_t element = 0, vector = 1;
  Words words(statement);
  for (auto word = words.next(); !word.empty(); word = words.next()) {
    if (word == ".extern") return 0;
    if (word == ".version" || word == ".target" || word == ".address_size" || word == ".file")
      words.skip_arguments();
    is_global |= word == ".global";
    element = std::max(element, bytes_of_type(word));
    if (word == ".v2" || word == ".v4" || word == ".v8") vector = static_cast<std::uint64_t>(word[2] - '0');
  }
  std::uint64_t count = 0;
  for (std::string_view names = words.rest(); !names.empty();) {
    const auto comma = std::min(names.find(','), names.size());
    count = capped_sum(count, count_in(names.substr(0, comma)));
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return is_global ? capped_product(capped_product(element, vector), count) : 0;
}

}  // namespace

Bytes variables_of_text(const std::string& text) {
  std::uint64_t all = 0;
  Statements statements(text);
  while (const auto statement = statements.next()) all = capped_sum(all, bytes_declared(*statement));
  return {all};
}

}  // namespace gpumem
