#include "daemon/host/state/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "daemon/host/system/process.h"
#include "proto/lane.h"

namespace gpumem::host {
namespace {

constexpr int kLooks = 10;

struct Holder {
  long pid = 0;
  bool same_device = false;
};

// A line of /proc/locks: `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`. What waits for a lock has `->`.
std::optional<Holder> holder_in(const std::string& line, const struct stat& file) {
  char kind[16] = {};
  Holder holder;
  unsigned major = 0, minor = 0;
  unsigned long inode = 0;
  const int read =
      std::sscanf(line.c_str(), "%*d: %15s %*s %*s %ld %x:%x:%lu", kind, &holder.pid, &major, &minor, &inode);
  if (read != 5 || std::string_view(kind) != "FLOCK" || inode != file.st_ino) return std::nullopt;
  holder.same_device = major == ::major(file.st_dev) && minor == ::minor(file.st_dev);
  return holder;
}

// On some file systems (overlay, btrfs) the kernel shows another device for the file than stat does.
std::optional<Holder> look_for_holder(const struct stat& file) {
  std::ifstream locks("/proc/locks");
  std::optional<Holder> likely;
  for (std::string line; std::getline(locks, line);) {
    const auto holder = holder_in(line, file);
    if (holder && holder->same_device) return holder;
    if (holder) likely = holder;
  }
  return likely;
}

// The kernel knows the holder of the lock; the text in the file may be of an earlier holder. Its list is read
// in pieces, and what others unlock in between moves a line into a piece that has been read.
std::optional<long> holder_of(const struct stat& file) {
  std::optional<Holder> likely;
  for (int look = 0; look < kLooks; ++look) {
    const auto holder = look_for_holder(file);
    if (holder) likely = holder;
    if (holder && holder->same_device) break;
  }
  return likely ? std::optional(likely->pid) : std::nullopt;
}

std::string describe(std::optional<long> holder, const std::string& folder) {
  const std::string holds = " holds the lock of " + folder;
  if (!holder) return "a process that the kernel does not name" + holds;
  if (*holder <= 0) return "a process of another PID namespace" + holds;
  const std::string pid = std::to_string(*holder), command = command_of(*holder);
  if (command == "gpumemd") return "another gpumemd (pid " + pid + ") serves " + folder;
  // A lock outlives the process that took it in those that have inherited the file.
  return command.empty() ? "process " + pid + ", which has ended, or a child of it," + holds
                         : "process " + pid + " (" + command + ")" + holds;
}

Result<UniqueFd> open_lock(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  UniqueFd lock(::open(path.c_str(), kFlags, 0600));
  if (!lock.valid()) return errno_error(errno, "cannot open " + path.string());
  struct stat found {};
  if (::fstat(lock.get(), &found) != 0) return errno_error(errno, "cannot look at " + path.string());
  if (!S_ISREG(found.st_mode))
    return Error{Code::kFailedPrecondition, path.string() + " is no regular file: remove it"};
  const bool foreign = found.st_uid != ::geteuid();
  if (foreign && ::fchown(lock.get(), ::geteuid(), static_cast<gid_t>(-1)) != 0)
    return errno_error(errno, "cannot take over " + path.string());
  if ((found.st_mode & 0777) != 0600 && ::fchmod(lock.get(), 0600) != 0)
    return errno_error(errno, "cannot set the mode of " + path.string());
  return lock;
}

}  // namespace

// The sticky bit helps little: whoever is first makes the file.
Result<void> check_closed(const std::filesystem::path& folder, std::string_view option) {
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0) return {};
  if (found.st_uid != 0 && found.st_uid != ::geteuid()) {
    const std::string own = std::to_string(::geteuid());
    return Error{Code::kFailedPrecondition,
                 folder.string() + " belongs to user " + std::to_string(found.st_uid) +
                     ", who can replace what the broker keeps there: chown " + own + " " + folder.string() +
                     " if you trust what is in it, or choose another " + std::string(option)};
  }
  if ((found.st_mode & S_IWOTH) == 0) return {};
  return Error{Code::kFailedPrecondition, "every user may write to " + folder.string() +
                                              " and so replace what the broker keeps there: chmod o-w " +
                                              folder.string() + ", or choose another " + std::string(option)};
}

Result<UniqueFd> lock_folder(const std::filesystem::path& folder, const std::filesystem::path& file,
                             std::string_view option) {
  auto lock = open_lock(file);
  if (!lock) return lock.error();
  if (::flock(lock->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return errno_error(errno, "cannot lock " + file.string());
    struct stat found {};
    ::fstat(lock->get(), &found);
    return Error{Code::kAlreadyExists, describe(holder_of(found), folder.string()) +
                                           ": stop it, or choose another " + std::string(option)};
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock->get(), 0) != 0 || ::pwrite(lock->get(), pid.data(), pid.size(), 0) < 0)
    return errno_error(errno, "cannot write " + file.string());
  return lock;
}

std::filesystem::path private_folder_of(const std::filesystem::path& runtime_folder) {
  return runtime_folder / kPrivateFolderName;
}

std::filesystem::path lock_file_of(const std::filesystem::path& runtime_folder) {
  return private_folder_of(runtime_folder) / kLockName;
}

void tell_in_lock(int lock, const std::string& line) {
  struct stat file {};
  if (::fstat(lock, &file) != 0) return;
  const std::string text = line + "\n";
  static_cast<void>(::pwrite(lock, text.data(), text.size(), file.st_size) < 0);
}

std::optional<long> holder_of_lock(const std::filesystem::path& runtime_folder) {
  struct stat file {};
  if (::stat(lock_file_of(runtime_folder).c_str(), &file) != 0) return std::nullopt;
  return holder_of(file);
}

}  // namespace gpumem::host
