#include "client/cli/regions/publish.h"

#include <utility>

#include "client/cli/regions/safetensors_file.h"
#include "client/cli/regions/source_file.h"

namespace gpumem::cli {
namespace {

/// A file of any bytes.
class PlainFile : public RegionSource {
 public:
  explicit PlainFile(std::filesystem::path path) : file_(std::move(path)) {}

  std::string name() const override { return file_.name(); }
  Result<void> open() override { return file_.open(); }
  std::uint64_t size() const override { return file_.size(); }
  Result<std::size_t> read(std::span<char> piece) override;
  Result<void> check() override { return file_.check(); }

 private:
  SourceFile file_;
  std::uint64_t done_ = 0;
};

Result<std::size_t> PlainFile::read(std::span<char> piece) {
  auto count = file_.read(piece, done_);
  if (count) done_ += *count;
  return count;
}

}  // namespace

int publish_file(PublicationOptions options, const std::filesystem::path& file, bool raw) {
  if (options.name.empty()) options.name = file.filename().string();
  const auto source = !raw && is_safetensors(file) ? safetensors_file(file) : plain_file(file);
  return publish_source(options, *source);
}

std::unique_ptr<RegionSource> plain_file(std::filesystem::path path) {
  return std::make_unique<PlainFile>(std::move(path));
}

}  // namespace gpumem::cli
