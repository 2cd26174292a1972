#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gpumem {

/// The file in which ldconfig keeps the libraries that it has found.
inline constexpr const char* kLoaderCache = "/etc/ld.so.cache";

/// The paths of `name` in the loader's cache, for programs of this architecture, in the order in which the
/// loader takes them. Empty: there are none, or the cache cannot be read. `cache`  another file than the
/// system's.
std::vector<std::filesystem::path> libraries_in_cache(std::string_view name,
                                                      const std::filesystem::path& cache = kLoaderCache);

}  // namespace gpumem
