#pragma once
#include <sys/types.h>

#include <string>

#include "gpumem/result.h"

namespace gpumem::cli {

/// The text of /proc/PID/NAME. Errors  kNotFound (no such process), kPermissionDenied: says who may look.
Result<std::string> read_proc_file(pid_t pid, const std::string& name);

}  // namespace gpumem::cli
