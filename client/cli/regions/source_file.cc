#include "client/cli/regions/source_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace gpumem::cli {

Error SourceFile::cannot_read() const { return errno_error(errno, "cannot read " + name()); }

// A FIFO would be waited for until somebody writes to it.
Result<void> SourceFile::open() {
  file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file_.valid() || ::fstat(file_.get(), &opened_) != 0) return cannot_read();
  if (!S_ISREG(opened_.st_mode)) return Error{Code::kInvalidArgument, name() + " is not a regular file"};
  if (size() == 0) return Error{Code::kInvalidArgument, name() + " is empty: a region has at least one byte"};
  return {};
}

Result<std::size_t> SourceFile::read(std::span<char> piece) {
  ssize_t count = 0;
  while ((count = ::read(file_.get(), piece.data(), piece.size())) < 0 && errno == EINTR) {
  }
  if (count < 0) return cannot_read();
  if (count == 0) {
    return Error{Code::kInternal, name() + " ends at byte " + std::to_string(done_) + " of " +
                                      std::to_string(size()) + ": it became shorter"};
  }
  done_ += static_cast<std::uint64_t>(count);
  return static_cast<std::size_t>(count);
}

Result<void> SourceFile::check() const {
  struct stat now = {};
  if (::fstat(file_.get(), &now) != 0) return cannot_read();
  const auto written = [](const struct stat& file) {
    return std::pair(file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  };
  if (now.st_size == opened_.st_size && written(now) == written(opened_)) return {};
  return Error{Code::kAborted,
               name() + ": the file changed while it was read; nothing is published. Try again"};
}

}  // namespace gpumem::cli
