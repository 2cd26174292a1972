#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "gpumem/bytes.h"

namespace gpumem::core {

/// Puts amounts in the order in which their owners are asked: the largest first; of equal ones, the older
/// owner.
template <class Id>
void largest_first(std::vector<std::pair<Bytes, Id>>& amounts) {
  std::ranges::sort(amounts, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
}

}  // namespace gpumem::core
