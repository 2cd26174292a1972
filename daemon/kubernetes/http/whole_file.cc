#include "daemon/kubernetes/http/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/crash_point.h"
#include "base/system/files.h"
#include "base/system/unique_fd.h"

namespace gpumem::kubernetes {
namespace {

// Not under its own ending: runtimes read every .json file of the folder of device specifications.
std::filesystem::path fresh_of(const std::filesystem::path& file) { return file.string() + ".new"; }

Result<void> write_whole(int file, std::string_view text, mode_t mode) {
  if (fails_at(CrashPoint::kDraWrite)) return errno_error(ENOSPC, "cannot write");
  if (auto written = write_all(file, text); !written) return written;
  if (::fchmod(file, mode) != 0 || ::fsync(file) != 0) return errno_error(errno, "cannot write");
  return {};
}

Result<void> unlink_if_there(const std::filesystem::path& file) {
  if (::unlink(file.c_str()) == 0) return {};
  const int failed = errno;
  // A file system that is read-only says so first, whether or not the file is there.
  struct stat found = {};
  if (::lstat(file.c_str(), &found) != 0 && (errno == ENOENT || errno == ENOTDIR)) return {};
  return errno_error(failed, "cannot remove " + file.string());
}

}  // namespace

Result<void> replace_file(const std::filesystem::path& file, std::string_view text, mode_t mode) {
  const std::filesystem::path fresh = fresh_of(file);
  const UniqueFd opened(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!opened.valid()) return errno_error(errno, "cannot make " + fresh.string());
  Result<void> written = write_whole(opened.get(), text, mode);
  if (written) crash_at(CrashPoint::kDraWritten);
  if (written && ::rename(fresh.c_str(), file.c_str()) != 0) written = errno_error(errno, "cannot rename");
  if (!written) {
    ::unlink(fresh.c_str());
    return written.error().in(file.string());
  }
  crash_at(CrashPoint::kDraRenamed);
  if (auto synced = sync_folder(file.parent_path()); !synced) return synced.error().in(file.string());
  return {};
}

Result<void> remove_file(const std::filesystem::path& file) {
  if (auto removed = unlink_if_there(fresh_of(file)); !removed) return removed.error();
  return unlink_if_there(file);
}

}  // namespace gpumem::kubernetes
