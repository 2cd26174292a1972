#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// The whole of `file`. Errors  kNotFound, kPermissionDenied, and others; all name the file.
Result<std::string> read_text(const std::filesystem::path& file);

/// Writes `text` into a new `file`, in place of what is there, down to the disk. On errors nothing is left of
/// it. Errors  kResourceExhausted (the disk is full), and others; all name the file.
Result<void> write_durably(const std::filesystem::path& file, std::string_view text);

/// Writes all of `text`. Errors  as write_durably, without a name.
Result<void> write_all(int file, std::string_view text);

/// Makes what was made, renamed or removed in `folder` last.
Result<void> sync_folder(const std::filesystem::path& folder);

/// Locks `folder` for this process, by a file in it that holds the process id, as long as the descriptor
/// lives. `option`  of gpumemd that names another folder, for the message. Errors  kAlreadyExists: another
/// gpumemd has it.
Result<UniqueFd> lock_folder(const std::filesystem::path& folder, std::string_view option);

}  // namespace gpumem::host
