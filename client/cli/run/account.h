#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::cli {

/// What one process has borrowed through the drop-in driver.
struct ProcessAccount {
  pid_t pid = 0;
  Bytes peak;
  std::chrono::nanoseconds waited{0};
  std::uint64_t denials = 0;
  Bytes last_denied;
};

/// The folder in which the processes of a command write their accounts. Only this user may enter it. It is
/// removed with its owner.
class AccountFolder {
 public:
  /// Makes it in XDG_RUNTIME_DIR, TMPDIR or /tmp. Errors  those of mkdtemp(3).
  static Result<AccountFolder> make();
  AccountFolder(AccountFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  AccountFolder& operator=(AccountFolder&&) = delete;
  ~AccountFolder();

  const std::filesystem::path& path() const { return path_; }
  /// The accounts that are there, by pid. Files that are no account are left out.
  std::vector<ProcessAccount> read() const;

 private:
  explicit AccountFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

/// One line: peak, time waited, what was denied, over all processes.
std::string account_text(const std::vector<ProcessAccount>& accounts);

}  // namespace gpumem::cli
