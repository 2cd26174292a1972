#pragma once
#include <string>
#include <vector>

namespace gpumem::cli {

/// The one of `names` that `word` was most likely meant to be; empty: none is near. `most`  letters that may
/// be other ones; 0: two, or a third of a long word.
std::string nearest_name(const std::string& word, const std::vector<std::string>& names,
                         std::size_t most = 0);

}  // namespace gpumem::cli
