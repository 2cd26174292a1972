#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/metrics/histogram.h"

namespace gpumem::metrics {

enum class Type { kGauge, kCounter, kHistogram, kInfo };

/// A metric as docs/metrics.md has it.
struct Family {
  std::string_view name;  ///< without the suffixes of its samples
  Type type = Type::kGauge;
  std::string_view unit;  ///< the name ends with it; empty: none
  std::string_view help;
};

using Label = std::pair<std::string_view, std::string_view>;
using Labels = std::initializer_list<Label>;

/// Writes OpenMetrics 1.0 text, family by family. Label values are valid UTF-8: one bad byte would cost the
/// whole text.
class TextWriter {
 public:
  /// The samples that follow are of `family`. A family is begun once.
  void begin(const Family& family);
  /// Of a gauge or a counter.
  void sample(Labels labels, std::uint64_t value);
  void sample(Labels labels, double value);
  void info(Labels labels);
  void histogram(Labels labels, const Histogram& histogram);
  /// The text, complete.
  std::string finish() &&;

 private:
  void line(std::string_view suffix, Labels labels, std::string_view value, std::string_view bound = {});
  void label(const Label& label);

  std::string text_;
  std::string_view name_;
  Type type_ = Type::kGauge;
};

}  // namespace gpumem::metrics
