#include "client/cli/regions/restore.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/unique_fd.h"
#include "client/cli/regions/saved_region.h"

namespace gpumem::cli {
namespace {

class SavedFile : public RegionSource {
 public:
  explicit SavedFile(std::filesystem::path path) : path_(std::move(path)) {}

  std::string name() const override { return path_.string(); }
  Result<void> open() override;
  std::uint64_t size() const override { return head_.size; }
  std::uint64_t layout() const override { return head_.layout; }
  std::array<unsigned char, 32> digest() const override { return head_.digest; }
  Result<std::size_t> read(std::span<char> piece) override;
  Result<void> check() override;

 private:
  Result<std::size_t> read_some(std::span<char> piece) const;

  const std::filesystem::path path_;
  UniqueFd file_;
  SavedHead head_;
  std::optional<Checksum> checksum_;
  std::uint64_t done_ = 0;
};

// A FIFO would be waited for until somebody writes to it.
Result<void> SavedFile::open() {
  file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found = {};
  if (!file_.valid() || ::fstat(file_.get(), &found) != 0) return errno_error(errno, "cannot read " + name());
  if (!S_ISREG(found.st_mode)) return Error{Code::kInvalidArgument, name() + " is not a regular file"};
  SavedHead::Text text{};
  for (std::size_t done = 0; done < text.size();) {
    const auto count = read_some(std::span(text).subspan(done));
    if (!count) return count.error();
    if (*count == 0) break;  // shorter than a head, as its size says
    done += *count;
  }
  const auto head = SavedHead::parse(text, static_cast<std::uint64_t>(found.st_size));
  if (!head) return head.error().in(name());
  head_ = *head;
  checksum_.emplace().add_head(head_);
  done_ = 0;
  return {};
}

Result<std::size_t> SavedFile::read_some(std::span<char> piece) const {
  for (;;) {
    const ssize_t count = ::read(file_.get(), piece.data(), piece.size());
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) return errno_error(errno, "cannot read " + name());
  }
}

Result<std::size_t> SavedFile::read(std::span<char> piece) {
  auto count = read_some(piece);
  if (!count) return count;
  if (*count == 0) {
    return Error{Code::kInvalidArgument,
                 name() + ": it was truncated while it was read, at byte " + std::to_string(done_)};
  }
  done_ += *count;
  checksum_->add(piece.first(*count));
  return count;
}

Result<void> SavedFile::check() {
  if (checksum_->finish() == head_.checksum) return {};
  return Error{
      Code::kInvalidArgument,
      name() + ": its content has changed since it was written; nothing is published. Save the region again"};
}

}  // namespace

int restore_region(const PublicationOptions& options, const std::filesystem::path& file) {
  SavedFile source(file);
  return publish_source(options, source);
}

std::unique_ptr<RegionSource> saved_file(std::filesystem::path path) {
  return std::make_unique<SavedFile>(std::move(path));
}

}  // namespace gpumem::cli
