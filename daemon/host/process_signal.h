#pragma once
#include <cstdint>

#include "base/unique_fd.h"
#include "daemon/core/effects.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// SIGTERM or SIGKILL.
int signal_number(core::Signal signal);

/// When the process `pid` started, as the kernel counts (/proc/PID/stat, field 22).
/// Errors  kNotFound: it is gone.
Result<std::uint64_t> start_time(std::int64_t pid);

/// A handle of `pid`, if that is still the process that started then, and not a successor with its number.
/// Errors  kNotFound: it is gone; kResourceExhausted: no descriptor left.
Result<UniqueFd> open_process(std::int64_t pid, std::uint64_t started);

/// Whether the process behind `pidfd` has ended. False for -1.
bool has_ended(int pidfd);

/// Sends `signal` to the process behind `pidfd`. Errors  kNotFound: it is gone; kPermissionDenied.
Result<void> signal_process(int pidfd, core::Signal signal);

/// Sends `signal` to `pid` if that is still the process that started then, and not a successor with its
/// number. Errors  kNotFound: it is gone; kPermissionDenied.
Result<void> signal_process(std::int64_t pid, std::uint64_t started, core::Signal signal);

}  // namespace gpumem::host
