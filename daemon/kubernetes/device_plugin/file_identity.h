#pragma once
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <tuple>

namespace gpumem::kubernetes {

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
