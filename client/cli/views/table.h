#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace gpumem::cli {

/// How listings are shown to people.
struct Layout {
  static constexpr std::size_t kUnbounded = std::string::npos;

  bool is_long = false;                ///< every column, whole UUIDs, nothing cut
  bool is_terminal = false;            ///< bars are shown
  bool has_colour = false;             ///< as escape sequences
  std::size_t columns = kUnbounded;    ///< letters in a line
  std::vector<std::string> devices{};  ///< UUIDs in the order of `gpumem status`

  /// For standard output: as wide as its terminal, or as COLUMNS says; in colour on a terminal, unless
  /// NO_COLOR is set or TERM is `dumb`.
  static Layout of_output(bool is_long);
  /// `gpu0` by its place in `devices`; of one that is not there, the beginning of the UUID.
  std::string device(const std::string& uuid) const;
};

/// Text in aligned columns under a line of titles, made to fit the layout.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
    std::string usual{};    ///< a column where every cell is this, or empty, is left out; empty: it never is
    int rank = 0;           ///< where room lacks, the highest ranks are left out first; 0: never
    std::size_t least = 0;  ///< letters that its cells may be cut to, `+` shows where; 0: they are not cut
    bool alerts = false;    ///< cells that are not usual stand out
  };

  explicit Table(std::vector<Column> columns);

  /// Adds a line of one cell a column; missing cells are empty. Empty ones show as `-`.
  void add(std::vector<std::string> cells);

  /// Two spaces between columns, none at the end of a line.
  std::string text(const Layout& layout = {}) const;

 private:
  std::vector<std::size_t> chosen(const Layout& layout) const;
  std::size_t width_of(std::size_t column) const;
  std::size_t least_of(std::size_t column) const;
  std::string line_text(std::size_t line, const std::vector<std::size_t>& chosen,
                        const std::vector<std::size_t>& widths, bool has_colour) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> lines_;  ///< the first is of titles
};

}  // namespace gpumem::cli
