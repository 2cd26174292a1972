#pragma once
#include <filesystem>
#include <system_error>

namespace gpumem {

/// The absolute form of `path`, which may be a socket's and has to be short: the `..` at its beginning are
/// resolved (the working directory has no symbolic links). `path` itself where it is relative and the working
/// directory was deleted.
inline std::filesystem::path absolute_or_same(const std::filesystem::path& path) {
  if (path.is_absolute()) return path;
  std::error_code failed;
  std::filesystem::path found = std::filesystem::current_path(failed);
  if (failed) return path;
  bool leads_up = true;
  for (const std::filesystem::path& part : path) {
    leads_up = leads_up && part == "..";
    if (leads_up)
      found = found.parent_path();
    else
      found /= part;
  }
  return found;
}

}  // namespace gpumem
