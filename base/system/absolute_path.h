#pragma once
#include <filesystem>
#include <system_error>

namespace gpumem {

/// The absolute form of `path`; `path` itself where it is relative and the working directory was deleted.
inline std::filesystem::path absolute_or_same(const std::filesystem::path& path) {
  std::error_code failed;
  std::filesystem::path found = std::filesystem::absolute(path, failed);
  return failed ? path : found;
}

}  // namespace gpumem
