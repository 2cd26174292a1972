#include "client/cli/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace gpumem::cli {
namespace {

// Levenshtein's: letters to be put in, left out or exchanged.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t exchanged = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, exchanged});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(const std::string& word, const std::vector<std::string>& names, std::size_t most) {
  const auto best = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
  const bool is_near =
      best != names.end() &&
      edit_distance(word, *best) <= (most != 0 ? most : std::max<std::size_t>(2, word.size() / 3));
  return is_near ? *best : std::string();
}

}  // namespace gpumem::cli
