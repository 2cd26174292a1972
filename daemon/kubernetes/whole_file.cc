#include "daemon/kubernetes/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/crash_point.h"
#include "base/unique_fd.h"

namespace gpumem::kubernetes {
namespace {

// Not under its own ending: runtimes read every .json file of the folder of device specifications.
std::filesystem::path fresh_of(const std::filesystem::path& file) { return file.string() + ".new"; }

Result<void> write_whole(int file, std::string_view text, mode_t mode) {
  if (fails_at(CrashPoint::kDraWrite)) return errno_error(ENOSPC, "cannot write");
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return errno_error(written == 0 ? ENOSPC : errno, "cannot write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
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
  const UniqueFd folder(::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || ::fsync(folder.get()) != 0)
    return errno_error(errno, "cannot bring " + file.string() + " to the disk");
  return {};
}

Result<void> remove_file(const std::filesystem::path& file) {
  if (auto removed = unlink_if_there(fresh_of(file)); !removed) return removed.error();
  return unlink_if_there(file);
}

Result<std::string> read_file(const std::filesystem::path& file) {
  const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return errno_error(errno, "cannot read " + file.string());
  std::string text;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t count = ::read(opened.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error(errno, "cannot read " + file.string());
    if (count == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace gpumem::kubernetes
