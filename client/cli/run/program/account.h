#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
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
  bool is_kept = true;  ///< false: there was no room for it, and nothing else is known
};

/// The folder in which the processes of a command write their accounts. Only this user may enter it. It is
/// removed with its owner; if that was killed, when the user makes the next one. A command that runs inside
/// another makes its folder in the other's folder. It stays there, so that the outer account counts it.
class AccountFolder {
 public:
  /// Makes it in GPUMEM_ACCOUNT_FOLDER, if a command around this one has one, else in XDG_RUNTIME_DIR, TMPDIR
  /// or /tmp. Errors  those of mkdtemp(3).
  static Result<AccountFolder> make();
  AccountFolder(AccountFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)), is_inner_(other.is_inner_) {}
  AccountFolder& operator=(AccountFolder&&) = delete;
  ~AccountFolder();

  const std::filesystem::path& path() const { return path_; }
  /// The accounts that are there, those of inner folders with them, by pid. Files that are no account are
  /// left out; empty ones are of processes that had no room for theirs.
  std::vector<ProcessAccount> read() const;

 private:
  AccountFolder(std::filesystem::path path, UniqueFd lock, bool is_inner)
      : path_(std::move(path)), lock_(std::move(lock)), is_inner_(is_inner) {}
  static Result<AccountFolder> make_in(const std::filesystem::path& parent, bool is_inner);

  std::filesystem::path path_;
  UniqueFd lock_;  ///< the folder, locked as long as its owner lives
  bool is_inner_;  ///< inside the folder of another command, and removed with it
};

/// One line: peak, time waited, what was denied, over all processes.
std::string account_text(std::vector<ProcessAccount> accounts);

}  // namespace gpumem::cli
