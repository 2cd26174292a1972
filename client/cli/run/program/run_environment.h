#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "client/cli/run/program/command.h"
#include "gpumem/bytes.h"
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

/// Errors  kFailedPrecondition: `program`, as execvp(3) takes it, uses the musl C library. The drop-in driver
/// and NVIDIA's need glibc.
Result<void> check_c_library(const std::string& program);

/// How the drop-in driver is to find and to treat a program.
struct ShimSettings {
  std::filesystem::path shim_folder;
  std::filesystem::path runtime_folder;
  std::filesystem::path driver_folder;  ///< of the real driver; empty: the system's
  std::uint64_t job = 0;                ///< that its processes join; 0: the one of the environment, if any
  std::optional<Bytes> limit;           ///< of each process
  std::optional<std::chrono::milliseconds> wait;
  std::string name;
  std::string device;  ///< UUID; empty: those that the program sees anyway
  bool optional = false;
  bool show_device = false;
  bool preload = false;
  bool framework_settings = true;
};

/// `base`, changed so that a program and its children use the drop-in driver as `settings` say.
Environment with_shim(Environment base, const ShimSettings& settings);

}  // namespace gpumem::cli
