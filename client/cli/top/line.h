#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gpumem::cli::top {

/// How text stands out. Without colour only the first four differ.
enum class Tone { kPlain, kTitle, kFaint, kSelected, kLent, kIdle, kContexts, kUnmanaged, kWarning, kAlarm };

struct Span {
  std::string text;
  Tone tone = Tone::kPlain;
  bool operator==(const Span&) const = default;
};

/// A line of the screen. Its text is ASCII and the glyphs of Glyphs, each of one cell.
using Line = std::vector<Span>;

/// Cells that the text takes.
std::size_t cells(std::string_view text);
std::size_t cells(const Line& line);
/// `text` in at most `width` cells; `+` shows that there is more.
std::string cut(std::string_view text, std::size_t width);
/// `text` cut, or with spaces, so that it takes `width` cells.
std::string left(std::string_view text, std::size_t width);
std::string right(std::string_view text, std::size_t width);
/// The line in at most `width` cells, without spaces at its end.
Line fitted(Line line, std::size_t width);
/// The text of the line alone.
std::string text_of(const Line& line);
/// As it is written to a terminal, in colour.
std::string coloured_text_of(const Line& line);

/// The letters of bars, strips and trees.
struct Glyphs {
  const char* lent;
  const char* idle;
  const char* contexts;
  const char* unmanaged;
  const char* free;
  const char* branch;
  const char* last_branch;
  const char* trunk;
  const char* gap;
  std::vector<const char*> levels;  ///< of a strip, from low to high

  static const Glyphs& ascii();
  static const Glyphs& unicode();
};

}  // namespace gpumem::cli::top
