#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/result.h"

namespace gpumem::cli {

/// The text of /proc/PID/NAME. Errors  kNotFound (no such process), kPermissionDenied: says who may look.
Result<std::string> read_proc_file(pid_t pid, const std::string& name);

/// A driver library that a process has mapped.
struct MappedDriver {
  std::string path;                  ///< as the process sees it
  int copies = 0;                    ///< how often it is loaded: more than once only in namespaces of dlmopen
  bool is_management = false;        ///< libnvidia-ml.so, not libcuda.so
  std::optional<bool> is_drop_in{};  ///< exports gpumem_shim_version; nothing: its file cannot be read
};

/// The driver libraries in `maps`, the text of /proc/PID/maps, by path. `is_drop_in` is left open.
std::vector<MappedDriver> drivers_in(std::string_view maps);

/// The drivers that the process has mapped. Errors  kNotFound (no such process), kPermissionDenied (it is
/// another user's).
Result<std::vector<MappedDriver>> mapped_drivers(pid_t pid);

}  // namespace gpumem::cli
