#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem {

/// The whole of `file`. Errors  kNotFound, kPermissionDenied, and others; all name the file.
Result<std::string> read_text(const std::filesystem::path& file);

/// Writes `text` into a new `file`, in place of what is there, down to the disk. On errors nothing is left of
/// it. Errors  kResourceExhausted (the disk is full), and others; all name the file.
Result<void> write_durably(const std::filesystem::path& file, std::string_view text);

/// Writes all of `text`. Errors  as write_durably, without a name.
Result<void> write_all(int file, std::string_view text);

/// Makes what was made, renamed or removed in `folder` last.
Result<void> sync_folder(const std::filesystem::path& folder);

}  // namespace gpumem
