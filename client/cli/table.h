#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/bytes.h"

namespace gpumem::cli {

/// `text` as it may be shown on a terminal: control characters, which could be escape sequences of whoever
/// chose a label, become `?`.
std::string printable(std::string_view text);

/// Makes text of several lines printable. Line breaks stay.
std::string printable_lines(std::string_view text);

/// An amount of bytes as the wire has it, for people.
inline std::string size_text(std::uint64_t bytes) { return to_string(Bytes{bytes}); }

/// Text in aligned columns under a line of titles.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns);

  /// Adds a line of one cell a column; missing cells are empty. Empty ones show as `-`.
  void add(std::vector<std::string> cells);

  /// Two spaces between columns, none at the end of a line.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> lines_;
};

}  // namespace gpumem::cli
