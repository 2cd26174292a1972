#pragma once
#include <filesystem>

#include "gpumem/result.h"

namespace gpumem::cli {

inline constexpr const char* kShimLibrary = "libcuda.so.1";
inline constexpr const char* kShimNvml = "libnvidia-ml.so.1";

/// The folder of the drop-in driver: what GPUMEM_SHIM_FOLDER names, else, seen from the folder of this
/// program, `../lib/gpumem/shim`, or `../shim/lib` of a build tree. An absolute path. Errors  kNotFound:
/// there is no drop-in driver.
Result<std::filesystem::path> shim_folder();

/// Errors  kFailedPrecondition: the loader would take the path of `folder` in LD_LIBRARY_PATH, or in
/// LD_PRELOAD if it is `preloaded`, for several ones, and find another driver.
Result<void> check_loadable(const std::filesystem::path& folder, bool preloaded);

}  // namespace gpumem::cli
