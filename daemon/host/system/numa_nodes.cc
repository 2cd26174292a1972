#include "daemon/host/system/numa_nodes.h"

#include <sstream>
#include <string>
#include <string_view>

#include "base/system/small_file.h"
#include "base/text/number.h"

namespace gpumem::host {

// A list such as `0-1,3`.
std::vector<int> nodes_with_memory(const std::filesystem::path& folder) {
  std::string text = read_small_file(folder / "has_memory").value_or("");
  while (text.ends_with('\n')) text.pop_back();
  std::vector<int> nodes;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::string_view all = range;
    const auto dash = all.find('-');
    const auto first = whole_number<int>(all.substr(0, dash));
    const auto last = dash == all.npos ? first : whole_number<int>(all.substr(dash + 1));
    if (!first || !last) return {0};
    for (int node = *first; node <= *last; ++node) nodes.push_back(node);
  }
  return nodes.empty() ? std::vector{0} : nodes;
}

Bytes free_of_node(const std::filesystem::path& folder, int node) {
  const auto file = folder / ("node" + std::to_string(node)) / "meminfo";
  std::istringstream words(read_small_file(file).value_or(""));
  for (std::string word; words >> word;) {
    std::uint64_t kibibytes = 0;
    if (word == "MemFree:" && words >> kibibytes) return {kibibytes << 10};
  }
  return {};
}

}  // namespace gpumem::host
