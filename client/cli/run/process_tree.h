#pragma once
#include <sys/types.h>

namespace gpumem::cli {

/// The parent of the process, as /proc says; 0 if there is none, or no such process.
pid_t parent_of(pid_t pid);

/// Whether the process descends from `ancestor`, or is it.
bool descends(pid_t pid, pid_t ancestor);

}  // namespace gpumem::cli
