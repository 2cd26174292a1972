#pragma once
#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// Replaces the content of `file` by `text`, down to the disk: a reader sees the old text or the new one,
/// also after a loss of power. The folder must exist. Errors  kResourceExhausted (the disk is full) and
/// others; all name the file, and the old content is unchanged.
Result<void> replace_file(const std::filesystem::path& file, std::string_view text, mode_t mode);

/// Removes `file`, and the temporary file of a process that died in replace_file. A missing file is no error,
/// on a read-only file system either. Errors  name the file.
Result<void> remove_file(const std::filesystem::path& file);

/// Tells a file from the one that stands there after it was replaced: device, inode, and when it came there
/// in seconds and nanoseconds, as inodes are used again.
using FileIdentity = std::tuple<dev_t, ino_t, std::int64_t, std::int64_t>;

/// The identity of the file at `path`; nothing: there is no file.
inline std::optional<FileIdentity> file_identity(const std::filesystem::path& path) {
  struct stat found = {};
  if (::lstat(path.c_str(), &found) != 0) return {};
  return FileIdentity{found.st_dev, found.st_ino, found.st_ctim.tv_sec, found.st_ctim.tv_nsec};
}

}  // namespace gpumem::kubernetes
