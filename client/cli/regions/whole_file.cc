#include "client/cli/regions/whole_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace gpumem::cli {
namespace {

Error is_there_already(const std::filesystem::path& place) {
  return {Code::kAlreadyExists,
          place.string() + " is there already: name another file, or replace it with --force"};
}

std::filesystem::path folder_of(const std::filesystem::path& place) {
  return place.has_parent_path() ? place.parent_path() : std::filesystem::path(".");
}

bool wants_room(int number) { return number == ENOSPC || number == EDQUOT || number == EFBIG; }

// Before anything is copied. A device, say, would be replaced by a file.
Result<void> check_place(const std::filesystem::path& place, WholeFile::IfThere there) {
  struct stat found = {};
  if (::lstat(place.c_str(), &found) != 0) {
    if (errno == ENOENT && !place.filename().empty()) return {};
    return errno_error(errno, "cannot write " + place.string());
  }
  if (!S_ISREG(found.st_mode) && !S_ISLNK(found.st_mode))
    return Error{Code::kInvalidArgument, place.string() + " is not a regular file: name another one"};
  if (there == WholeFile::IfThere::kRefuse) return is_there_already(place);
  return {};
}

}  // namespace

WholeFile::WholeFile(std::filesystem::path place, std::filesystem::path fresh, UniqueFd file, IfThere there)
    : place_(std::move(place)), fresh_(std::move(fresh)), file_(std::move(file)), there_(there) {}

WholeFile::WholeFile(WholeFile&& other) noexcept
    : place_(other.place_),
      fresh_(std::exchange(other.fresh_, {})),
      file_(std::move(other.file_)),
      there_(other.there_),
      end_(other.end_) {}

WholeFile::~WholeFile() {
  if (!fresh_.empty()) ::unlink(fresh_.c_str());
}

Result<WholeFile> WholeFile::create(const std::filesystem::path& place, std::uint64_t bytes, IfThere there) {
  if (auto free = check_place(place, there); !free) return free.error();
  std::string fresh = place.string() + ".XXXXXX";
  UniqueFd opened(::mkostemp(fresh.data(), O_CLOEXEC));
  if (!opened.valid()) return errno_error(errno, "cannot write in " + folder_of(place).string());
  WholeFile file(place, fresh, std::move(opened), there);
  // A disk without room says so now, if the file system can tell.
  const bool has_room = ::fallocate(file.file_.get(), 0, 0, static_cast<off_t>(bytes)) == 0;
  if (!has_room && wants_room(errno)) return file.cannot_write(errno);
  return file;
}

Error WholeFile::cannot_write(int number) const {
  Error error = errno_error(number, "cannot write " + place_.string());
  error.message += "; nothing of it is left";
  if (wants_room(number)) error.message += ": make room, or name a file elsewhere";
  return error;
}

Result<void> WholeFile::write(std::span<const char> bytes) {
  auto written = write_at(end_, bytes);
  if (written) end_ += bytes.size();
  return written;
}

Result<void> WholeFile::write_at(std::uint64_t offset, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return cannot_write(count == 0 ? ENOSPC : errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

// Some file systems of the network rename only over what is there; a link is refused by all.
int WholeFile::put_into_place() const {
  if (there_ == IfThere::kReplace) return ::rename(fresh_.c_str(), place_.c_str()) == 0 ? 0 : errno;
  if (::renameat2(AT_FDCWD, fresh_.c_str(), AT_FDCWD, place_.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (::link(fresh_.c_str(), place_.c_str()) != 0) return errno;
  ::unlink(fresh_.c_str());
  return 0;
}

Result<void> WholeFile::commit() {
  if (::fsync(file_.get()) != 0) return cannot_write(errno);
  if (const int failed = put_into_place(); failed != 0)
    return failed == EEXIST ? is_there_already(place_) : cannot_write(failed);
  fresh_.clear();
  const UniqueFd folder(::open(folder_of(place_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || ::fsync(folder.get()) != 0)
    return errno_error(errno, place_.string() + " is written, and may be lost if the machine fails now");
  return {};
}

}  // namespace gpumem::cli
