#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::cli {

/// A file that is whole or not there: it is written beside its place, for its user alone, and put there by
/// commit(). What was not committed is removed.
class WholeFile {
 public:
  enum class IfThere { kRefuse, kReplace };

  /// Begins a file of `bytes`. Errors  kAlreadyExists (with kRefuse), kResourceExhausted (no room for so
  ///         much), others of the file system. All name the file and say what to do.
  static Result<WholeFile> create(const std::filesystem::path& place, std::uint64_t bytes, IfThere there);

  WholeFile(WholeFile&& other) noexcept;
  WholeFile& operator=(WholeFile&&) = delete;
  ~WholeFile();

  /// Behind what was written before. Errors  as create.
  Result<void> write(std::span<const char> bytes);
  /// In place of what was written there.
  Result<void> write_at(std::uint64_t offset, std::span<const char> bytes);
  /// Brings it to the disk, and into its place. A file that has come there meanwhile is refused, too.
  Result<void> commit();

 private:
  WholeFile(std::filesystem::path place, std::filesystem::path fresh, UniqueFd file, IfThere there);
  Error cannot_write(int number) const;
  /// The errno of what fails; 0.
  int put_into_place() const;

  const std::filesystem::path place_;
  std::filesystem::path fresh_;  // empty: in its place, or moved from
  UniqueFd file_;
  const IfThere there_;
  std::uint64_t end_ = 0;
};

}  // namespace gpumem::cli
