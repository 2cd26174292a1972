#include "client/cli/system/system_switch.h"

#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/loader_cache.h"
#include "base/system_mode.h"
#include "client/cli/system/exported_names.h"

namespace gpumem::cli {
namespace {

namespace fs = std::filesystem;

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

/// Every program of the machine loads the file, so root alone may change it.
Result<void> check_owner(const fs::path& file) {
  std::error_code failed;
  const fs::path real = fs::canonical(file, failed), folder = real.parent_path();
  for (const fs::path& one : {real, folder, folder.parent_path()}) {
    struct stat info {};
    if (::stat(one.c_str(), &info) != 0) return errno_error(errno, "cannot look at " + one.string());
    if (info.st_uid != 0 || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
      return Error{Code::kFailedPrecondition, "users other than root may change " + one.string() +
                                                  ": install gpumem where they may not"};
  }
  return {};
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
  fs::remove(next, ignored);
  const fs::path file = fs::canonical(library.drop_in, failed);
  fs::create_hard_link(file, next, failed);
  if (failed) fs::copy_file(file, next, failed);  // another file system
  if (!failed) fs::rename(next, place, failed);
  fs::remove(name, ignored);
  if (!failed) fs::create_symlink(place.filename(), name, failed);
  return failed ? errno_error(failed.value(), "cannot make " + place.string()) : Result<void>();
}

Result<void> write_switch() {
  std::error_code failed;
  fs::create_directories(fs::path(system_mode::kOff).parent_path(), failed);
  std::ofstream file(system_mode::kSwitch, std::ios::trunc);
  file << "# gpumem system enable. Removed by: gpumem system disable\n" << system_folder().string() << "\n";
  file.close();
  if (file && ::chmod(system_mode::kSwitch, 0644) == 0) return {};
  return errno_error(errno, std::string("cannot write ") + system_mode::kSwitch);
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
  auto enabled = turn_on();
  if (!enabled && is_system_enabled()) static_cast<void>(disable_system());
  return enabled;
}

Result<void> disable_system() {
  if (auto root = check_root(); !root) return root;
  if (::unlink(system_mode::kSwitch) != 0 && errno != ENOENT)
    return errno_error(errno, std::string("cannot remove ") + system_mode::kSwitch);
  return run_ldconfig();
}

}  // namespace gpumem::cli
