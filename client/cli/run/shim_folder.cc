#include "client/cli/run/shim_folder.h"

#include <unistd.h>

#include <cstdlib>

namespace gpumem::cli {

namespace {

bool has_shim(const std::filesystem::path& folder) {
  return ::access((folder / kShimLibrary).c_str(), R_OK) == 0;
}

/// Beside this program: where it is installed, else in its build tree. The former if there is neither.
std::filesystem::path folder_beside(const std::filesystem::path& program) {
  const auto seen_from_here = [&](const char* path) {
    return (program.parent_path() / path).lexically_normal();
  };
  const auto installed = seen_from_here("../lib/gpumem/shim");
  const auto built = seen_from_here("../shim/lib");
  return !has_shim(installed) && has_shim(built) ? built : installed;
}

}  // namespace

Result<std::filesystem::path> shim_folder() {
  std::error_code failed;
  const char* named = ::secure_getenv("GPUMEM_SHIM_FOLDER");
  const bool is_named = named != nullptr && *named != '\0';
  const auto folder = is_named ? std::filesystem::absolute(named, failed)
                               : folder_beside(std::filesystem::read_symlink("/proc/self/exe", failed));
  if (!failed && has_shim(folder)) return folder;
  return Error{
      Code::kNotFound,
      "there is no drop-in driver at " + (folder / kShimLibrary).string() +
          (is_named ? ": correct GPUMEM_SHIM_FOLDER"
                    : ": install the whole package gpumem, or name its folder by GPUMEM_SHIM_FOLDER")};
}

// See ld.so(8); it also replaces what a dollar sign stands before.
Result<void> check_loadable(const std::filesystem::path& folder, bool preloaded) {
  const char* const separators = preloaded ? ": \t\n$" : ":;$";
  const std::size_t at = folder.native().find_first_of(separators);
  if (at == std::string::npos) return {};
  const char* const variable = preloaded ? "LD_PRELOAD" : "LD_LIBRARY_PATH";
  return Error{Code::kFailedPrecondition,
               "the drop-in driver is in " + folder.string() + ", and no path with '" + folder.native()[at] +
                   "' in it can stand in " + variable + ": name another path of it by GPUMEM_SHIM_FOLDER"};
}

}  // namespace gpumem::cli
