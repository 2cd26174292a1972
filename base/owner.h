#pragma once
#include <cstdint>
#include <vector>

namespace gpumem {

/// The user that answers for a process of its containers.
struct Owner {
  std::uint32_t uid = 0;
  std::vector<std::uint32_t> gids;
  bool operator==(const Owner&) const = default;
};

}  // namespace gpumem
