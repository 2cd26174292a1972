#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "gpumem/bytes.h"

namespace gpumem::core {

/// Takes `member` out of the set that `index` has for `key`, and the set with its last one.
template <class Index, class Member>
void drop_from(Index& index, const typename Index::key_type& key, const Member& member) {
  const auto found = index.find(key);
  found->second.erase(member);
  if (found->second.empty()) index.erase(found);
}

/// Puts amounts in the order in which their owners are asked: the largest first; of equal ones, the oldest.
template <class Id>
void largest_first(std::vector<std::pair<Bytes, Id>>& amounts) {
  std::ranges::sort(amounts, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
}

}  // namespace gpumem::core
