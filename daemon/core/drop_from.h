#pragma once

namespace gpumem::core {

/// Takes `member` out of the set that `index` has for `key`, and the set with its last one.
template <class Index, class Member>
void drop_from(Index& index, const typename Index::key_type& key, const Member& member) {
  const auto found = index.find(key);
  found->second.erase(member);
  if (found->second.empty()) index.erase(found);
}

}  // namespace gpumem::core
