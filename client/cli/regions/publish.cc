#include "client/cli/regions/publish.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/unique_fd.h"

namespace gpumem::cli {
namespace {

/// A file of any bytes.
class PlainFile : public RegionSource {
 public:
  explicit PlainFile(std::filesystem::path path) : path_(std::move(path)) {}

  std::string name() const override { return path_.string(); }
  Result<void> open() override;
  std::uint64_t size() const override { return static_cast<std::uint64_t>(opened_.st_size); }
  Result<std::size_t> read(std::span<char> piece) override;
  Result<void> rewind() override;
  Result<void> check() override;

 private:
  Error cannot_read() const { return errno_error(errno, "cannot read " + name()); }

  const std::filesystem::path path_;
  UniqueFd file_;
  struct stat opened_ = {};
  std::uint64_t done_ = 0;
};

// A FIFO would be waited for until somebody writes to it.
Result<void> PlainFile::open() {
  file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file_.valid() || ::fstat(file_.get(), &opened_) != 0) return cannot_read();
  if (!S_ISREG(opened_.st_mode)) return Error{Code::kInvalidArgument, name() + " is not a regular file"};
  if (size() == 0) return Error{Code::kInvalidArgument, name() + " is empty: a region has at least one byte"};
  return {};
}

Result<std::size_t> PlainFile::read(std::span<char> piece) {
  ssize_t count = 0;
  while ((count = ::read(file_.get(), piece.data(), piece.size())) < 0 && errno == EINTR) {
  }
  if (count < 0) return cannot_read();
  done_ += static_cast<std::uint64_t>(count);
  if (count > 0) return static_cast<std::size_t>(count);
  return Error{Code::kInternal, name() + " ends at byte " + std::to_string(done_) + " of " +
                                    std::to_string(size()) + ": it became shorter"};
}

Result<void> PlainFile::rewind() {
  if (::lseek(file_.get(), 0, SEEK_SET) < 0) return cannot_read();
  done_ = 0;
  return {};
}

// It may be read twice: for its hash, and for its bytes.
Result<void> PlainFile::check() {
  struct stat now = {};
  if (::fstat(file_.get(), &now) != 0) return cannot_read();
  const auto written = [](const struct stat& file) {
    return std::pair(file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  };
  if (now.st_size == opened_.st_size && written(now) == written(opened_)) return {};
  return Error{Code::kAborted,
               name() + ": the file changed while it was read; nothing is published. Try again"};
}

}  // namespace

int publish_file(PublicationOptions options, const std::filesystem::path& file) {
  if (options.name.empty()) options.name = file.filename().string();
  PlainFile source(file);
  return publish_source(options, source);
}

std::unique_ptr<RegionSource> plain_file(std::filesystem::path path) {
  return std::make_unique<PlainFile>(std::move(path));
}

}  // namespace gpumem::cli
