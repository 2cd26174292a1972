#include "client/cli/system/system_switch.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/system/loader_cache.h"
#include "base/system/system_mode.h"
#include "base/system/unique_fd.h"
#include "client/cli/system/exported_names.h"

namespace gpumem::cli {
namespace {

namespace fs = std::filesystem;

constexpr fs::perms kReadableByAll{0755};

/// A folder of the installation that this program is part of.
fs::path installed(const char* folder) {
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  return (program.parent_path() / ".." / "lib" / "gpumem" / folder).lexically_normal();
}

Result<void> check_root() {
  if (::geteuid() == 0) return {};
  return Error{Code::kPermissionDenied, "only root can change which driver the loader finds: use sudo"};
}

// Debian's packages call ldconfig through a wrapper that puts the call off, unless it is told not to.
Result<void> run_ldconfig() {
  const char* const program = "/sbin/ldconfig";
  char* const arguments[] = {const_cast<char*>(program), nullptr};
  char* const environment[] = {const_cast<char*>("PATH=/usr/sbin:/usr/bin:/sbin:/bin"),
                               const_cast<char*>("LDCONFIG_NOTRIGGER=y"), nullptr};
  pid_t child = 0;
  if (const int failed = ::posix_spawn(&child, program, nullptr, nullptr, arguments, environment);
      failed != 0)
    return errno_error(failed, std::string("cannot start ") + program);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Error{Code::kFailedPrecondition, std::string(program) + " has failed"};
}

/// Every program of the machine loads the file: all users may read it, and root alone may change it or a
/// folder on its path.
Result<void> check_owner(const fs::path& file) {
  std::error_code failed;
  const fs::path real = fs::canonical(file, failed);
  for (fs::path one = real;; one = one.parent_path()) {
    struct stat info {};
    if (::stat(one.c_str(), &info) != 0) return errno_error(errno, "cannot look at " + one.string());
    const bool is_sticky = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
    if (info.st_uid != 0 || (!is_sticky && (info.st_mode & (S_IWGRP | S_IWOTH)) != 0))
      return Error{Code::kFailedPrecondition, "users other than root may change " + one.string() +
                                                  ": install gpumem where they may not"};
    if ((info.st_mode & (S_ISDIR(info.st_mode) ? S_IXOTH : S_IROTH)) == 0)
      return Error{Code::kFailedPrecondition,
                   "users other than root may not read " + one.string() + ": install gpumem where they may"};
    if (one == one.root_path()) return {};
  }
}

Result<void> check_library(const SystemLibrary& library) {
  if (library.drop_in.empty())
    return Error{Code::kNotFound, "there is no drop-in driver at " +
                                      (installed("shim") / library.file).string() +
                                      ": install the whole package gpumem"};
  if (library.real.empty())
    return Error{Code::kNotFound, "the loader finds no " + library.file +
                                      " of NVIDIA's driver: install the driver, then run ldconfig"};
  if (auto owned = check_owner(library.drop_in); !owned) return owned;
  if (!library.problem.empty()) return Error{Code::kFailedPrecondition, library.problem};
  if (library.missing.empty()) return {};
  return Error{Code::kFailedPrecondition, library.real.string() +
                                              " has functions that the drop-in driver lacks (" +
                                              std::to_string(library.missing.size()) + "), such as " +
                                              library.missing.front() + ": install a newer gpumem"};
}

/// The first error of `step`.
Result<void> for_each_library(Result<void> (*step)(const SystemLibrary&)) {
  for (const SystemLibrary& library : system_libraries())
    if (auto good = step(library); !good) return good;
  return {};
}

Result<void> check_first(const SystemLibrary& library) {
  if (library.is_drop_in_first()) return {};
  return Error{Code::kFailedPrecondition, library.first.string() +
                                              " comes first in the loader's cache, not " +
                                              (system_folder() / library.file).string() +
                                              ": see /etc/ld.so.conf and the files of /etc/ld.so.conf.d"};
}

/// A hard link: a program that finds the file by both of its paths loads it once. A symbolic link would not
/// do, because programs that resolve it would not be known to be in system mode.
Result<void> put_in_place(const SystemLibrary& library) {
  const fs::path place = system_folder() / library.file, next = place.string() + ".new";
  const fs::path name = place.parent_path() / place.stem();  // without a version
  std::error_code failed, ignored;
  fs::create_directories(place.parent_path(), failed);
  fs::permissions(place.parent_path(), kReadableByAll, ignored);
  fs::remove(next, ignored);
  const fs::path file = fs::canonical(library.drop_in, failed);
  if (!failed && fs::equivalent(file, place, ignored) && fs::exists(name)) return {};  // perhaps read-only
  fs::create_hard_link(file, next, failed);
  if (failed) fs::copy_file(file, next, failed);  // another file system
  if (!failed) fs::rename(next, place, failed);
  if (!failed && !fs::exists(name)) fs::create_symlink(place.filename(), name, failed);
  return failed ? errno_error(failed.value(), "cannot make " + place.string()) : Result<void>();
}

/// Beside the switch, where ldconfig does not look at it.
const std::string kAside = std::string(system_mode::kSwitch) + ".new";

/// The switch is there as a whole or not at all: ldconfig may run at any time.
Result<void> write_switch() {
  const fs::path folder_of_off = fs::path(system_mode::kOff).parent_path();
  std::error_code ignored;
  fs::create_directories(folder_of_off, ignored);
  fs::permissions(folder_of_off, kReadableByAll, ignored);
  std::ofstream file(kAside, std::ios::trunc);
  file << "# gpumem system enable. Removed by: gpumem system disable\n" << system_folder().string() << "\n";
  file.close();
  if (file && ::rename(kAside.c_str(), system_mode::kSwitch) == 0) return {};
  auto error = errno_error(errno, std::string("cannot write ") + system_mode::kSwitch);
  ::unlink(kAside.c_str());
  return error;
}

/// Until the end of the process: another one that enables or disables waits. Without the folder there is
/// nothing to do for either.
void wait_for_others() {
  static const UniqueFd folder(
      ::open(fs::path(system_mode::kSwitch).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid()) ::flock(folder.get(), LOCK_EX);
}

/// Nothing has changed if it fails.
Result<void> turn_off() {
  if (::rename(system_mode::kSwitch, kAside.c_str()) != 0 && errno != ENOENT)
    return errno_error(errno, std::string("cannot remove ") + system_mode::kSwitch);
  auto cached = run_ldconfig();
  if (cached)
    ::unlink(kAside.c_str());
  else
    ::rename(kAside.c_str(), system_mode::kSwitch);
  return cached;
}

Result<void> turn_on() {
  if (auto cached = run_ldconfig(); !cached) return cached;  // the driver may have been replaced since
  if (auto good = for_each_library(check_library); !good) return good;
  if (auto placed = for_each_library(put_in_place); !placed) return placed;
  if (auto written = write_switch(); !written) return written;
  if (auto cached = run_ldconfig(); !cached) return cached;
  return for_each_library(check_first);
}

}  // namespace

bool SystemLibrary::is_drop_in_first() const { return first == system_folder() / file; }

fs::path system_folder() { return installed("system"); }

bool is_system_enabled() { return ::access(system_mode::kSwitch, F_OK) == 0; }

std::vector<SystemLibrary> system_libraries() {
  std::vector<SystemLibrary> all;
  for (const auto& [file, prefix] : {std::pair("libcuda.so.1", "cu"), {"libnvidia-ml.so.1", "nvml"}}) {
    SystemLibrary library{.file = file, .first = {}, .real = system_mode::real_library(file), .drop_in = {}};
    const auto cached = libraries_in_cache(file);
    if (!cached.empty()) library.first = cached.front();
    const fs::path ours = installed("shim") / file;
    if (::access(ours.c_str(), R_OK) == 0) library.drop_in = ours;
    if (!library.real.empty() && !library.drop_in.empty()) {
      const auto missing = missing_functions(library.real, library.drop_in, prefix);
      if (missing)
        library.missing.assign(missing->begin(), missing->end());
      else
        library.problem = missing.error().message;
    }
    all.push_back(std::move(library));
  }
  return all;
}

Result<void> enable_system() {
  if (auto root = check_root(); !root) return root;
  ::umask(S_IWGRP | S_IWOTH);  // root's own may keep users from what is made here
  wait_for_others();
  const bool was_enabled = is_system_enabled();
  auto enabled = turn_on();
  if (enabled) return enabled;
  if (!was_enabled) ::unlink(system_mode::kSwitch);
  static_cast<void>(turn_off());
  return enabled;
}

Result<void> disable_system() {
  if (auto root = check_root(); !root) return root;
  wait_for_others();
  return turn_off();
}

}  // namespace gpumem::cli
