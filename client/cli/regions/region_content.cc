#include "client/cli/regions/region_content.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "client/cli/listings.h"
#include "client/cli/regions/array_layout.h"
#include "client/cli/regions/array_name.h"
#include "client/cli/regions/safetensors_file.h"
#include "client/cli/regions/safetensors_header.h"
#include "client/cli/table.h"
#include "client/cli/views.h"

namespace gpumem::cli {
namespace {

Result<bool> write_out(std::span<const char> piece) {
  while (!piece.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, piece.data(), piece.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_error(errno, "cannot write to standard output");
    piece = piece.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

Error cannot_write(Error error) {
  error.message += "; --raw writes the region's bytes as they are";
  return error.in("cannot write the region as a file of safetensors");
}

// Complex numbers of 16 bytes have no name there, and one name is the metadata's.
Result<SafetensorsHeader> header_of(const ArrayLayout& layout) {
  SafetensorsHeader header{{}, layout.metadata};
  for (const ArrayPlace& array : layout.arrays) {
    if (array.dtype->safetensors.empty() || array.name == "__metadata__") {
      return Error{Code::kInvalidArgument, "the array " + shown_name(array.name) + " of " +
                                               std::string(array.dtype->name) + " cannot be in one"};
    }
    header.tensors.push_back(
        {array.name, array.dtype, array.shape, array.offset, array.offset + array.bytes()});
  }
  return header;
}

Result<void> write_arrays(const RegionReader& region, std::string_view encoded) {
  const auto layout = ArrayLayout::decode(encoded, region.size().count - encoded.size());
  if (!layout) return cannot_write(layout.error());
  if (const auto said = region.digest(); said != decltype(said){} && said != digest_of(encoded))
    return cannot_write({Code::kInvalidArgument, "its layout is not the one whose digest was published"});
  const auto header = header_of(*layout);
  if (!header) return cannot_write(header.error());
  if (auto written = write_out(header->text()); !written) return written.error();
  std::vector<RegionReader::Range> ranges;
  for (const ArrayPlace& array : layout->arrays) ranges.push_back({array.offset, array.bytes()});
  return region.read(ranges, write_out);
}

// Layouts are their publishers': what does not begin as one of arrays is of something else.
Result<void> write_content(const RegionReader& region) {
  if (region.layout().count == 0 || region.layout().count > ArrayLayout::kMostBytes)
    return region.read(write_out);
  const auto encoded = region.read_layout();
  if (!encoded) return encoded.error();
  return ArrayLayout::is_encoded(*encoded) ? write_arrays(region, *encoded) : region.read(write_out);
}

/// A file that is held against a region.
struct Comparison {
  std::uint64_t region = 0;  ///< bytes
  std::uint64_t file = 0;
  std::optional<std::uint64_t> difference;  ///< where they first differ; the end of the shorter counts
  bool is_in_layout = false;                ///< the difference: the arrays' bytes are equal
};

class Comparer {
 public:
  /// Fills the first bytes of a piece with the next ones. Answers how many; 0: it ends.
  using Read = std::function<Result<std::size_t>(std::span<char> piece)>;

  /// `size`  bytes that `read` gives.
  Comparer(std::uint64_t size, Read read) : size_(size), read_(std::move(read)) {}

  Result<Comparison> compare(const RegionReader& region) {
    const auto read = region.read([this](std::span<const char> piece) { return take(piece); });
    if (!read) return read.error();
    if (!difference_ && size_ != region.size().count) difference_ = std::min(size_, region.size().count);
    return Comparison{region.size().count, size_, difference_, false};
  }

 private:
  Result<bool> take(std::span<const char> piece) {
    mine_.resize(piece.size());
    std::size_t count = 0;
    while (count < piece.size() && done_ + count < size_) {
      const auto more = read_(std::span(mine_).subspan(count));
      if (!more) return more.error();
      if (*more == 0) break;
      count += *more;
    }
    const auto end = mine_.begin() + static_cast<std::ptrdiff_t>(count);
    const auto equal =
        static_cast<std::uint64_t>(std::mismatch(mine_.begin(), end, piece.begin()).first - mine_.begin());
    if (equal < piece.size()) difference_ = done_ + equal;
    done_ += count;
    return !difference_.has_value();
  }

  const std::uint64_t size_;
  const Read read_;
  std::vector<char> mine_;
  std::uint64_t done_ = 0;
  std::optional<std::uint64_t> difference_;
};

Result<Comparison> compare_bytes(const RegionReader& region, const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code failed;
  const std::uint64_t size = std::filesystem::file_size(path, failed);
  if (failed || !file) return errno_error(failed ? failed.value() : errno, "cannot read " + path.string());
  return Comparer(size,
                  [&](std::span<char> piece) -> Result<std::size_t> {
                    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
                    if (file.bad()) return Error{Code::kInternal, "cannot read " + path.string()};
                    return static_cast<std::size_t>(file.gcount());
                  })
      .compare(region);
}

// What the file is published as, layout included: two files of the same bytes may have other arrays.
Result<Comparison> compare_arrays(const RegionReader& region, const std::filesystem::path& path) {
  const auto source = safetensors_file(path);
  if (auto opened = source->open(); !opened) return opened.error();
  auto found =
      Comparer(source->size(), [&](std::span<char> piece) { return source->read(piece); }).compare(region);
  if (found && found->difference)
    found->is_in_layout = *found->difference >= region.size().count - region.layout().count;
  return found;
}

std::string comparison_text(const RegionName& name, const std::string& file, const Comparison& found) {
  std::string text = "'" + name.name + "' and " + file;
  if (!found.difference) return text + " are equal: " + size_text(found.region) + "\n";
  text += " differ from byte " + std::to_string(*found.difference) + " on";
  if (found.region != found.file) {
    text +=
        "; the region has " + std::to_string(found.region) + " bytes, the file " + std::to_string(found.file);
  }
  if (found.is_in_layout)
    text += ": the arrays' bytes are equal, their names, types, shapes or metadata are not";
  return text + "\n";
}

Json comparison_json(const RegionName& name, std::uint64_t version, const Comparison& found) {
  return {{"name", name.name},
          {"version", version},
          {"equal", !found.difference.has_value()},
          {"first_difference", found.difference ? Json(*found.difference) : Json()},
          {"region_bytes", found.region},
          {"file_bytes", found.file}};
}

}  // namespace

int cat_region(const std::filesystem::path& runtime_folder, const RegionName& name, bool raw) {
  const auto region = RegionReader::open(runtime_folder, name);
  if (!region) return report(region.error());
  const auto written = raw ? region->read(write_out) : write_content(*region);
  return written ? 0 : report(written.error());
}

int verify_region(const std::filesystem::path& runtime_folder, const RegionName& name,
                  const std::filesystem::path& file, bool json) {
  std::error_code failed;
  if (std::filesystem::exists(file, failed) && !std::filesystem::is_regular_file(file, failed))
    return report(Error{Code::kInvalidArgument, file.string() + " is not a regular file"});
  const auto region = RegionReader::open(runtime_folder, name);
  if (!region) return report(region.error());
  const bool has_arrays = region->layout().count > 0 && is_safetensors(file);
  const auto found = has_arrays ? compare_arrays(*region, file) : compare_bytes(*region, file);
  if (!found) return report(found.error());
  std::cout << (json ? json_text(comparison_json(name, region->version(), *found))
                     : printable_lines(comparison_text(name, file.string(), *found)))
            << std::flush;
  return found->difference || !std::cout ? 1 : 0;
}

}  // namespace gpumem::cli
