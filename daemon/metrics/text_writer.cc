#include "daemon/metrics/text_writer.h"

#include <array>
#include <charconv>

namespace gpumem::metrics {
namespace {

constexpr std::array<std::string_view, 4> kTypes{"gauge", "counter", "histogram", "info"};

// The shortest digits that are the number, always with a point or an exponent, as bounds of buckets have to
// be.
std::string number(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string text(digits.data(), end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\' || c == '"') safe += '\\';
    safe += c == '\n' ? std::string_view("\\n") : std::string_view(&c, 1);
  }
  return safe;
}

}  // namespace

void TextWriter::begin(const Family& family) {
  name_ = family.name;
  type_ = family.type;
  const std::string name(name_);
  text_ += "# TYPE " + name + " " + std::string(kTypes[static_cast<std::size_t>(type_)]) + "\n";
  if (!family.unit.empty()) text_ += "# UNIT " + name + " " + std::string(family.unit) + "\n";
  text_ += "# HELP " + name + " " + escaped(family.help) + "\n";
}

void TextWriter::sample(Labels labels, std::uint64_t value) {
  line(type_ == Type::kCounter ? "_total" : "", labels, std::to_string(value));
}

void TextWriter::sample(Labels labels, double value) {
  line(type_ == Type::kCounter ? "_total" : "", labels, number(value));
}

void TextWriter::info(Labels labels) { line("_info", labels, "1"); }

void TextWriter::histogram(Labels labels, const Histogram& histogram) {
  const auto counts = histogram.cumulative();
  for (std::size_t i = 0; i < Histogram::kBounds.size(); ++i)
    line("_bucket", labels, std::to_string(counts[i]), number(Histogram::kBounds[i]));
  line("_bucket", labels, std::to_string(counts.back()), "+Inf");
  line("_count", labels, std::to_string(counts.back()));
  line("_sum", labels, number(histogram.sum()));
}

std::string TextWriter::finish() && {
  text_ += "# EOF\n";
  return std::move(text_);
}

void TextWriter::line(std::string_view suffix, Labels labels, std::string_view value,
                      std::string_view bound) {
  text_ += name_;
  text_ += suffix;
  const char* before = "{";
  for (const Label& one : labels) {
    text_ += std::exchange(before, ",");
    label(one);
  }
  if (!bound.empty()) {
    text_ += std::exchange(before, ",");
    label({"le", bound});
  }
  if (*before == ',') text_ += '}';
  text_ += ' ';
  text_ += value;
  text_ += '\n';
}

void TextWriter::label(const Label& label) {
  text_ += label.first;
  text_ += "=\"";
  text_ += escaped(label.second);
  text_ += '"';
}

}  // namespace gpumem::metrics
