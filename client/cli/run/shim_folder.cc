#include "client/cli/run/shim_folder.h"

#include <unistd.h>

#include <cstdlib>

namespace gpumem::cli {

Result<std::filesystem::path> shim_folder() {
  std::error_code failed;
  const char* named = ::secure_getenv("GPUMEM_SHIM_FOLDER");
  const bool is_named = named != nullptr && *named != '\0';
  std::filesystem::path folder;
  if (is_named) {
    folder = std::filesystem::absolute(named, failed);
  } else {
    const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
    folder = (program.parent_path() / "../lib/gpumem/shim").lexically_normal();
  }
  if (!failed && ::access((folder / kShimLibrary).c_str(), R_OK) == 0) return folder;
  return Error{
      Code::kNotFound,
      "there is no drop-in driver at " + (folder / kShimLibrary).string() +
          (is_named ? ": correct GPUMEM_SHIM_FOLDER"
                    : ": install the whole package gpumem, or name its folder by GPUMEM_SHIM_FOLDER")};
}

}  // namespace gpumem::cli
