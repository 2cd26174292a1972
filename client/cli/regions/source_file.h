#pragma once
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/system/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::cli {

/// A file that a region is published from, read once and in order. It stays the one that was opened, whatever
/// has its name since.
class SourceFile {
 public:
  explicit SourceFile(std::filesystem::path path) : path_(std::move(path)) {}

  std::string name() const { return path_.string(); }
  /// Errors  name the file: it cannot be read, is not a regular file, or empty.
  Result<void> open();
  /// As it was opened.
  std::uint64_t size() const { return static_cast<std::uint64_t>(opened_.st_size); }
  /// Fills the first bytes of `piece` with the next ones. Answers how many: one at least.
  /// Errors  it ends here, as it did not when it was opened.
  Result<std::size_t> read(std::span<char> piece);
  /// Errors  kAborted: it was written to since it was opened.
  Result<void> check() const;

 private:
  Error cannot_read() const;

  const std::filesystem::path path_;
  UniqueFd file_;
  struct stat opened_ = {};
  std::uint64_t done_ = 0;  ///< bytes that were read
};

}  // namespace gpumem::cli
