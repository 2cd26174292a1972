#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// Puts `text` in the place of `file`, whole and down to the disk: a reader, and whoever starts after a loss
/// of power, sees the old text or the new one. Its folder has to be there. Errors  kResourceExhausted (the
/// disk is full) and others; all name the file, and what was there is unchanged.
Result<void> replace_file(const std::filesystem::path& file, std::string_view text, mode_t mode);

/// Removes `file`, and what a process that died in replace_file has left beside it; that it is not there is
/// no error, on a read-only file system either. Errors  name the file.
Result<void> remove_file(const std::filesystem::path& file);

/// All of `file`. Errors  kNotFound, kPermissionDenied and others; all name the file.
Result<std::string> read_file(const std::filesystem::path& file);

}  // namespace gpumem::kubernetes
