#include "client/cli/regions/publish.h"

#include <cerrno>
#include <fstream>

namespace gpumem::cli {
namespace {

/// A file of any bytes.
class PlainFile : public RegionSource {
 public:
  explicit PlainFile(std::filesystem::path path) : path_(std::move(path)) {}

  std::string name() const override { return path_.string(); }
  std::uint64_t size() const override { return size_; }

  Result<void> open() override {
    std::error_code failed;
    const auto kind = std::filesystem::status(path_, failed);
    if (failed) return errno_error(failed.value(), "cannot read " + name());
    if (!std::filesystem::is_regular_file(kind))
      return Error{Code::kInvalidArgument, name() + " is not a regular file"};
    size_ = std::filesystem::file_size(path_, failed);
    file_.open(path_, std::ios::binary);
    if (failed || !file_) return errno_error(failed ? failed.value() : errno, "cannot read " + name());
    if (size_ == 0)
      return Error{Code::kInvalidArgument, name() + " is empty: a region has at least one byte"};
    return {};
  }

  Result<std::size_t> read(std::span<char> piece) override {
    file_.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto count = static_cast<std::size_t>(file_.gcount());
    done_ += count;
    if (count != 0) return count;
    return Error{Code::kInternal, name() + " ends at byte " + std::to_string(done_) + " of " +
                                      std::to_string(size_) + ": it became shorter, or cannot be read"};
  }

 private:
  const std::filesystem::path path_;
  std::ifstream file_;
  std::uint64_t size_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace

int publish_file(PublicationOptions options, const std::filesystem::path& file) {
  if (options.name.empty()) options.name = file.filename().string();
  PlainFile source(file);
  return publish_source(options, source);
}

}  // namespace gpumem::cli
