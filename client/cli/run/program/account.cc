#include "client/cli/run/program/account.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "client/cli/views/text.h"
#include "client/shim/figures.h"

namespace gpumem::cli {
namespace {

constexpr std::string_view kPrefix = "account.";
constexpr std::string_view kFolderPrefix = "gpumem-run-";
constexpr int kDeepest = 8;  // of commands inside commands: the folders are in others' hands

std::string parent_folder() {
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* folder = std::getenv(name);
    if (folder != nullptr && *folder == '/' && ::access(folder, W_OK | X_OK) == 0) return folder;
  }
  return "/tmp";
}

// The first of a process of that number; others of the same number, in PID namespaces of their own, have a
// number behind a point.
std::optional<pid_t> pid_of(const std::string& file) {
  if (!file.starts_with(kPrefix)) return std::nullopt;
  pid_t pid = 0;
  const char* end = file.data() + file.size();
  const auto [rest, failed] = std::from_chars(file.data() + kPrefix.size(), end, pid);
  const bool is_whole =
      rest == end || (*rest == '.' && rest + 1 != end &&
                      std::all_of(rest + 1, end, [](char c) { return c >= '0' && c <= '9'; }));
  return failed == std::errc() && is_whole && pid > 0 ? std::optional(pid) : std::nullopt;
}

// The command may have put anything there: no link is followed, no pipe waited for.
std::optional<ProcessAccount> read_account(const std::filesystem::path& file, pid_t pid) {
  const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!opened.valid() || ::fstat(opened.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  if (info.st_size == 0) return ProcessAccount{pid, {}, {}, 0, {}, false};
  shim::AccountPage page{};
  if (::pread(opened.get(), &page, sizeof page, 0) != sizeof page || page.magic != shim::kAccountMagic)
    return std::nullopt;
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 62;
  return ProcessAccount{
      pid,          {page.peak_bytes},        std::chrono::nanoseconds(std::min(page.waited_ns, kLongest)),
      page.denials, {page.last_denied_bytes}, true};
}

UniqueFd open_folder(const std::filesystem::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

// Folders of this user whose owners were killed: nobody locks them.
void remove_abandoned(const std::filesystem::path& parent) {
  std::error_code failed;
  for (std::filesystem::directory_iterator it(parent, failed), end; !failed && it != end;
       it.increment(failed)) {
    if (!it->path().filename().string().starts_with(kFolderPrefix)) continue;
    const UniqueFd folder = open_folder(it->path());
    struct stat info {};
    if (!folder.valid() || ::fstat(folder.get(), &info) != 0 || info.st_uid != ::geteuid()) continue;
    std::error_code no_matter;
    if (::flock(folder.get(), LOCK_EX | LOCK_NB) == 0) std::filesystem::remove_all(it->path(), no_matter);
  }
}

// The folder of the enclosing command, if it still exists: the environment may name one that is gone.
std::optional<std::filesystem::path> outer_folder() {
  const char* outer = std::getenv("GPUMEM_ACCOUNT_FOLDER");
  if (outer == nullptr || ::access(outer, W_OK | X_OK) != 0) return std::nullopt;
  const std::filesystem::path path(outer);
  if (!path.is_absolute() || !path.filename().string().starts_with(kFolderPrefix)) return std::nullopt;
  return path;
}

void read_accounts(const std::filesystem::path& folder, int depth, std::vector<ProcessAccount>& accounts) {
  std::error_code failed;
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename();
    std::error_code no_matter;
    if (name.starts_with(kFolderPrefix) && depth > 0 &&
        it->symlink_status(no_matter).type() == std::filesystem::file_type::directory)
      read_accounts(it->path(), depth - 1, accounts);
    const auto pid = pid_of(name);
    const auto account = pid ? read_account(it->path(), *pid) : std::nullopt;
    if (account) accounts.push_back(*account);
  }
}

std::uint64_t capped_sum(std::uint64_t a, std::uint64_t b) { return a + std::min(b, ~a); }

}  // namespace

Result<AccountFolder> AccountFolder::make() {
  if (const auto outer = outer_folder()) {
    if (auto inner = make_in(*outer, true)) return inner;
  }
  const std::filesystem::path parent = parent_folder();
  remove_abandoned(parent);
  return make_in(parent, false);
}

Result<AccountFolder> AccountFolder::make_in(const std::filesystem::path& parent, bool is_inner) {
  for (;;) {
    std::string path = parent / (std::string(kFolderPrefix) + "XXXXXX");
    if (::mkdtemp(path.data()) == nullptr) return errno_error(errno, "cannot make the folder " + path);
    UniqueFd lock = open_folder(path);
    static_cast<void>(::flock(lock.get(), LOCK_EX));  // a file system without locks has nothing removed
    if (::access(path.c_str(), F_OK) == 0) return AccountFolder(path, std::move(lock), is_inner);
  }  // taken for abandoned before it was locked
}

AccountFolder::~AccountFolder() {
  std::error_code no_matter;
  if (!path_.empty() && !is_inner_) std::filesystem::remove_all(path_, no_matter);
}

std::vector<ProcessAccount> AccountFolder::read() const {
  std::vector<ProcessAccount> accounts;
  read_accounts(path_, kDeepest, accounts);
  std::ranges::sort(accounts, {}, &ProcessAccount::pid);
  return accounts;
}

std::string account_text(std::vector<ProcessAccount> accounts) {
  const auto without = std::erase_if(accounts, [](const ProcessAccount& one) { return !one.is_kept; });
  if (accounts.empty() && without == 0) return "no process of the command used the drop-in driver";
  std::string missing =
      "no room for the account of " + std::to_string(without) + (without == 1 ? " process" : " processes");
  if (accounts.empty()) return missing;
  ProcessAccount all;
  Bytes largest;
  for (const ProcessAccount& one : accounts) {
    largest = std::max(largest, one.peak);
    all.peak.count = capped_sum(all.peak.count, one.peak.count);
    all.waited = std::chrono::nanoseconds(std::min(capped_sum(static_cast<std::uint64_t>(all.waited.count()),
                                                              static_cast<std::uint64_t>(one.waited.count())),
                                                   std::uint64_t{1} << 62));
    all.denials = capped_sum(all.denials, one.denials);
    if (one.denials != 0) all.last_denied = one.last_denied;
  }
  std::string text = "peak " + to_string(all.peak);
  if (accounts.size() > 1)
    text += " in " + std::to_string(accounts.size()) + " processes (the largest " + to_string(largest) + ")";
  text += ", waited " + span_text(std::chrono::floor<std::chrono::milliseconds>(all.waited));
  if (without != 0) text += ", " + missing;
  if (all.denials == 0) return text + ", nothing denied";
  text += ", " + std::to_string(all.denials) + (all.denials == 1 ? " request denied" : " requests denied");
  return all.last_denied.is_zero() ? text : text + " (the last: " + to_string(all.last_denied) + ")";
}

}  // namespace gpumem::cli
