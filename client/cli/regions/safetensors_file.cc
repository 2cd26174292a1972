#include "client/cli/regions/safetensors_file.h"

#include <algorithm>
#include <utility>

#include "client/cli/regions/array_layout.h"
#include "client/cli/regions/safetensors_header.h"
#include "client/cli/regions/source_file.h"

namespace gpumem::cli {
namespace {

constexpr std::string_view kSuffix = ".safetensors";

// What frameworks change while a model is used: gpumem.arrays.PRIVATE (Python) has the same.
bool is_private_name(std::string_view name) {
  constexpr std::array<std::string_view, 7> kEnds{"running_mean", "running_var",     "num_batches_tracked",
                                                  "moving_mean",  "moving_variance", "seed_generator_state",
                                                  "cache_index"};
  return name.find("moving_average") != std::string_view::npos ||
         std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

class SafetensorsFile : public RegionSource {
 public:
  explicit SafetensorsFile(std::filesystem::path path) : file_(std::move(path)) {}

  std::string name() const override { return file_.name(); }
  Result<void> open() override;
  std::uint64_t size() const override { return layout_at_ + encoded_.size(); }
  std::uint64_t layout() const override { return encoded_.size(); }
  std::array<unsigned char, 32> digest() const override { return digest_of(encoded_); }
  std::uint64_t arrays() const override { return tensors_.size(); }
  Result<std::size_t> read(std::span<char> piece) override;
  Result<void> check() override { return file_.check(); }

 private:
  struct Placed {
    std::uint64_t begin;  ///< in the region
    std::uint64_t end;
    std::uint64_t source;  ///< in the file
  };

  /// Of bytes that come from one place: a tensor, what is between two, or the layout.
  Result<std::size_t> read_part(std::span<char> piece);
  /// Zeros up to `end`.
  std::size_t read_gap(std::span<char> piece, std::uint64_t end) const;

  SourceFile file_;
  std::vector<Placed> tensors_;
  std::string encoded_;
  std::uint64_t layout_at_ = 0;
  std::uint64_t done_ = 0;
  std::size_t next_ = 0;  ///< the first tensor that ends behind `done_`
};

Result<void> SafetensorsFile::open() {
  if (auto opened = file_.open(); !opened) return opened;
  const auto refuse = [this](const Error& error) {
    Error named = error.in(name());
    if (error.code == Code::kInvalidArgument) named.message += "; --raw publishes the bytes of any file";
    return named;
  };
  auto header = SafetensorsHeader::read(file_);
  if (!header) return refuse(header.error());
  ArrayLayout layout{{}, std::move(header->metadata)};
  std::uint64_t end = 0;
  for (Tensor& tensor : header->tensors) {
    const std::uint64_t at = array_aligned(end);
    end = at + (tensor.end - tensor.begin);
    if (end > kMostArrayBytes)
      return refuse({Code::kInvalidArgument, "its tensors have more than 2^63 - 1 bytes"});
    tensors_.push_back({at, end, tensor.begin});
    Shape strides = contiguous_strides(tensor.shape, tensor.dtype->size);
    const bool is_private = is_private_name(tensor.name);
    layout.arrays.push_back({tensor.dtype,
                             std::move(tensor.name),
                             at,
                             is_private,
                             std::move(tensor.shape),
                             std::move(strides),
                             {}});
  }
  auto encoded = layout.encode();
  if (!encoded) return refuse(encoded.error());
  encoded_ = std::move(*encoded);
  layout_at_ = array_aligned(end);
  return {};
}

Result<std::size_t> SafetensorsFile::read(std::span<char> piece) {
  piece = piece.first(std::min<std::uint64_t>(piece.size(), size() - done_));
  std::size_t filled = 0;
  while (filled < piece.size()) {
    auto count = read_part(piece.subspan(filled));
    if (!count) return count;
    filled += *count;
    done_ += *count;
  }
  return filled;
}

Result<std::size_t> SafetensorsFile::read_part(std::span<char> piece) {
  while (next_ < tensors_.size() && tensors_[next_].end <= done_) ++next_;
  if (next_ < tensors_.size()) {
    const Placed& tensor = tensors_[next_];
    if (done_ < tensor.begin) return read_gap(piece, tensor.begin);
    const std::uint64_t left = tensor.end - done_;
    return file_.read(piece.first(std::min<std::uint64_t>(piece.size(), left)),
                      tensor.source + (done_ - tensor.begin));
  }
  if (done_ < layout_at_) return read_gap(piece, layout_at_);
  return encoded_.copy(piece.data(), piece.size(), done_ - layout_at_);
}

std::size_t SafetensorsFile::read_gap(std::span<char> piece, std::uint64_t end) const {
  const std::span<char> gap = piece.first(std::min<std::uint64_t>(piece.size(), end - done_));
  std::ranges::fill(gap, '\0');
  return gap.size();
}

}  // namespace

bool is_safetensors(const std::filesystem::path& path) { return path.filename().string().ends_with(kSuffix); }

std::unique_ptr<RegionSource> safetensors_file(std::filesystem::path path) {
  return std::make_unique<SafetensorsFile>(std::move(path));
}

}  // namespace gpumem::cli
