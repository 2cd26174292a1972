#include "client/cli/top/line.h"

#include <algorithm>

namespace gpumem::cli::top {
namespace {

bool begins_glyph(char byte) { return (byte & 0xC0) != 0x80; }

// The bytes of the first `width` glyphs.
std::size_t bytes_of(std::string_view text, std::size_t width) {
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size(); ++end)
    if (begins_glyph(text[end]) && ++count > width) break;
  return end;
}

const char* escape_of(Tone tone) {
  switch (tone) {
    case Tone::kPlain: return "";
    case Tone::kTitle: return "\033[1m";
    case Tone::kFaint: return "\033[2m";
    case Tone::kSelected: return "\033[7m";
    case Tone::kLent: return "\033[32m";
    case Tone::kIdle: return "\033[34m";
    case Tone::kContexts: return "\033[35m";
    case Tone::kUnmanaged:
    case Tone::kAlarm: return "\033[31m";
    case Tone::kWarning: return "\033[33m";
  }
  return "";
}

}  // namespace

std::size_t cells(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_glyph));
}

std::size_t cells(const Line& line) {
  std::size_t sum = 0;
  for (const Span& span : line) sum += cells(span.text);
  return sum;
}

std::string cut(std::string_view text, std::size_t width) {
  if (cells(text) <= width) return std::string(text);
  if (width == 0) return {};
  return std::string(text.substr(0, bytes_of(text, width - 1))) + "+";
}

std::string left(std::string_view text, std::size_t width) {
  std::string shown = cut(text, width);
  return shown + std::string(width - cells(shown), ' ');
}

std::string right(std::string_view text, std::size_t width) {
  const std::string shown = cut(text, width);
  return std::string(width - cells(shown), ' ') + shown;
}

Line fitted(Line line, std::size_t width) {
  std::size_t room = width;
  for (Span& span : line) {
    span.text = cut(span.text, room);
    room -= cells(span.text);
  }
  while (!line.empty() && line.back().tone != Tone::kSelected) {
    std::string& text = line.back().text;
    text.erase(text.find_last_not_of(' ') + 1);
    if (!text.empty()) break;
    line.pop_back();
  }
  return line;
}

std::string text_of(const Line& line) {
  std::string text;
  for (const Span& span : line) text += span.text;
  return text;
}

std::string coloured_text_of(const Line& line) {
  std::string text;
  for (const Span& span : line) {
    const std::string begin = escape_of(span.tone);
    text += begin + span.text + (begin.empty() ? "" : "\033[0m");
  }
  return text;
}

const Glyphs& Glyphs::ascii() {
  static const Glyphs glyphs{"#",   "=",   "c",   "x",   ".",
                             "|- ", "`- ", "|  ", "   ", {" ", ".", ":", "-", "=", "+", "*", "#"}};
  return glyphs;
}

const Glyphs& Glyphs::unicode() {
  static const Glyphs glyphs{"█",   "▒",   "▓",   "x",   ".",
                             "├─ ", "└─ ", "│  ", "   ", {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}};
  return glyphs;
}

}  // namespace gpumem::cli::top
