#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "gpumem/result.h"

namespace gpumem::cli {

/// One of the two driver libraries, as the loader finds it and as it lies in the drop-in driver's folder.
struct SystemLibrary {
  std::string file;                    ///< such as libcuda.so.1
  std::filesystem::path first;         ///< the path that the loader takes; empty: there is none
  std::filesystem::path real;          ///< the real driver's; empty: there is none
  std::filesystem::path drop_in;       ///< the newest that is installed beside this program; empty: none
  std::vector<std::string> missing{};  ///< functions of `real` that `drop_in` does not export
  std::string problem{};               ///< why `missing` is not known

  bool is_drop_in_first() const;
};

/// libcuda.so.1 and libnvidia-ml.so.1, by the loader's cache as it is now.
std::vector<SystemLibrary> system_libraries();

/// The folder that the switch names: seen from the folder of this program, `../lib/gpumem/system`. Enabling
/// makes it.
std::filesystem::path system_folder();
bool is_system_enabled();

/// Has the loader find the drop-in driver first. After an error system mode is disabled, but if ldconfig has
/// failed, all is as it was.
/// Errors  kPermissionDenied: not root.
///         kNotFound: no drop-in driver, or no real one.
///         kFailedPrecondition: the real driver has functions that the drop-in one lacks; another user may
///         change the drop-in one, or may not read it; another file comes first; ldconfig fails.
Result<void> enable_system();
/// Errors  kPermissionDenied: not root; kFailedPrecondition: ldconfig fails, and all is as it was.
Result<void> disable_system();

}  // namespace gpumem::cli
