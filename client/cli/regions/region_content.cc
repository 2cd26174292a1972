#include "client/cli/regions/region_content.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <optional>
#include <vector>

#include "client/cli/listings.h"
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

/// A file that is held against a region.
struct Comparison {
  std::uint64_t region = 0;  ///< bytes
  std::uint64_t file = 0;
  std::optional<std::uint64_t> difference;  ///< where they first differ; the end of the shorter counts
};

class Comparer {
 public:
  explicit Comparer(const std::filesystem::path& path) : path_(path), file_(path, std::ios::binary) {}

  Result<Comparison> compare(const RegionReader& region) {
    std::error_code failed;
    const std::uint64_t file = std::filesystem::file_size(path_, failed);
    if (failed || !file_)
      return errno_error(failed ? failed.value() : errno, "cannot read " + path_.string());
    const auto read = region.read([this](std::span<const char> piece) { return take(piece); });
    if (!read) return read.error();
    if (!difference_ && file != region.size().count) difference_ = std::min(file, region.size().count);
    return Comparison{region.size().count, file, difference_};
  }

 private:
  Result<bool> take(std::span<const char> piece) {
    mine_.resize(piece.size());
    file_.read(mine_.data(), static_cast<std::streamsize>(piece.size()));
    const auto count = static_cast<std::size_t>(file_.gcount());
    if (file_.bad()) return Error{Code::kInternal, "cannot read " + path_.string()};
    const auto other = std::mismatch(mine_.begin(), mine_.begin() + file_.gcount(), piece.begin()).first;
    const auto equal = static_cast<std::uint64_t>(other - mine_.begin());
    if (equal < piece.size()) difference_ = done_ + equal;
    done_ += count;
    return !difference_.has_value();
  }

  const std::filesystem::path path_;
  std::ifstream file_;
  std::vector<char> mine_;
  std::uint64_t done_ = 0;
  std::optional<std::uint64_t> difference_;
};

std::string comparison_text(const RegionName& name, const std::string& file, const Comparison& found) {
  std::string text = "'" + name.name + "' and " + file;
  if (!found.difference) return text + " are equal: " + size_text(found.region) + "\n";
  text += " differ from byte " + std::to_string(*found.difference) + " on";
  if (found.region != found.file) {
    text +=
        "; the region has " + std::to_string(found.region) + " bytes, the file " + std::to_string(found.file);
  }
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

int cat_region(const std::filesystem::path& runtime_folder, const RegionName& name) {
  const auto region = RegionReader::open(runtime_folder, name);
  if (!region) return report(region.error());
  const auto written = region->read(write_out);
  return written ? 0 : report(written.error());
}

int verify_region(const std::filesystem::path& runtime_folder, const RegionName& name,
                  const std::filesystem::path& file, bool json) {
  std::error_code failed;
  if (std::filesystem::exists(file, failed) && !std::filesystem::is_regular_file(file, failed))
    return report(Error{Code::kInvalidArgument, file.string() + " is not a regular file"});
  const auto region = RegionReader::open(runtime_folder, name);
  if (!region) return report(region.error());
  const auto found = Comparer(file).compare(*region);
  if (!found) return report(found.error());
  std::cout << (json ? json_text(comparison_json(name, region->version(), *found))
                     : printable_lines(comparison_text(name, file.string(), *found)))
            << std::flush;
  return found->difference || !std::cout ? 1 : 0;
}

}  // namespace gpumem::cli
