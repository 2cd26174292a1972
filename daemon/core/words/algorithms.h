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

/// Whether `a` is asked before `b`: the larger amount; of equal ones, the oldest owner's.
template <class Id>
bool is_asked_before(const std::pair<Bytes, Id>& a, const std::pair<Bytes, Id>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

/// Puts amounts in the order in which their owners are asked.
template <class Id>
void largest_first(std::vector<std::pair<Bytes, Id>>& amounts) {
  std::ranges::sort(amounts, is_asked_before<Id>);
}

/// As largest_first(), and drops all but the first `most`.
template <class Id>
void keep_largest(std::vector<std::pair<Bytes, Id>>& amounts, std::size_t most) {
  const auto end = amounts.begin() + static_cast<std::ptrdiff_t>(std::min(most, amounts.size()));
  std::ranges::partial_sort(amounts, end, is_asked_before<Id>);
  amounts.erase(end, amounts.end());
}

}  // namespace gpumem::core
