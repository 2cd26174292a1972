#include "client/cli/regions/region_content.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "client/cli/commands/commands.h"
#include "client/cli/regions/publication.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

// As `python3 -m gpumem.safetensors`, but modules of the current folder are not found, and a package that is
// missing is named in words.
constexpr const char* kProgram = R"(import sys
sys.path = [folder for folder in sys.path if folder]
try:
    from gpumem._safetensors_command import main
except ModuleNotFoundError as missing:
    if missing.name not in ('gpumem', 'gpumem._safetensors_command'):
        raise
    sys.exit('gpumem: ' + sys.executable + ' has no package gpumem of this version, which reads and writes '
             'files of safetensors: install the package python3-gpumem, or the wheel gpumemd for this '
             'Python; --raw takes the bytes as they are')
sys.exit(main())
)";

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
  /// Fills the first bytes of a piece with the next ones. Answers how many; 0: it ends.
  using Read = std::function<Result<std::size_t>(std::span<char> piece)>;

  /// `size`  bytes that `read` gives.
  Comparer(std::uint64_t size, Read read) : size_(size), read_(std::move(read)) {}

  Result<Comparison> compare(const RegionReader& region) {
    const auto read = region.read([this](std::span<const char> piece) { return take(piece); });
    if (!read) return read.error();
    if (!difference_ && size_ != region.size().count) difference_ = std::min(size_, region.size().count);
    return Comparison{region.size().count, size_, difference_};
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

// The command of Python that reads this version of the region.
std::vector<std::string> python_words(const std::string& command, const RegionName& name,
                                      std::uint64_t version) {
  return {command, "--owner=" + name.owner, "--version=" + std::to_string(version)};
}

}  // namespace

Result<Staging> Staging::open(const std::string& driver_folder, int ordinal) {
  if (ordinal < 0) return Staging(nullptr);
  auto driver = cuda::Driver::open(driver_folder);
  if (!driver) return driver.error();
  auto context = cuda::CurrentContext::enter(**driver, ordinal);
  if (!context) return context.error();
  Staging staging(*driver);
  staging.context_.emplace(std::move(*context));
  return staging;
}

Result<void> Staging::store(std::uint64_t address, std::size_t count) const {
  if (driver_ == nullptr) {
    std::memcpy(reinterpret_cast<void*>(address), bytes_.data(), count);
    return {};
  }
  return driver_->check(driver_->api().cuMemcpyHtoD(address, bytes_.data(), count), "cuMemcpyHtoD");
}

// A copy from pageable memory returns when the bytes are read, not when they are written.
Result<void> Staging::finish() const {
  if (driver_ == nullptr) return {};
  return driver_->check(driver_->api().cuCtxSynchronize(), "cuCtxSynchronize");
}

Result<void> Staging::load(std::uint64_t address, std::size_t count) {
  if (driver_ == nullptr) {
    std::memcpy(bytes_.data(), reinterpret_cast<const void*>(address), count);
    return {};
  }
  return driver_->check(driver_->api().cuMemcpyDtoH(bytes_.data(), address, count), "cuMemcpyDtoH");
}

Result<RegionReader> RegionReader::open(const std::filesystem::path& runtime_folder, const RegionName& name) {
  auto session = Session::connect({runtime_folder.string(), "gpumem"});
  if (!session) return session.error();
  auto region = session->map_region(name.name, {.owner = name.owner,
                                                .version = name.version,
                                                .newer_than = name.newer_than,
                                                .wait = name.wait,
                                                .stop = {}});
  if (!region) return region.error();
  return RegionReader(std::move(*session), std::move(*region));
}

Result<void> RegionReader::read(const Take& take) const {
  auto staging = Staging::open(session_.driver_folder(), region_.ordinal());
  if (!staging) return staging.error();
  for (std::uint64_t done = 0; done < size().count;) {
    const std::size_t count = std::min<std::uint64_t>(Staging::kBytes, size().count - done);
    if (auto loaded = staging->load(region_.address() + done, count); !loaded) return loaded;
    const auto more = take(staging->bytes().first(count));
    if (!more) return more.error();
    if (!*more) return {};
    done += count;
  }
  return {};
}

int run_python(const std::filesystem::path& runtime_folder, std::vector<std::string> words) {
  words.insert(words.begin(), {"python3", "-c", kProgram});
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::setenv("GPUMEM_RUNTIME_DIR", runtime_folder.c_str(), 1);
  ::execvp("python3", arguments.data());
  return report(errno_error(errno,
                            "Python, which reads and writes files of safetensors, cannot be started: install "
                            "the package python3-gpumem, or use --raw; python3"));
}

int cat_region(const std::filesystem::path& runtime_folder, const RegionName& name, bool raw) {
  std::uint64_t version = 0;
  {
    const auto region = RegionReader::open(runtime_folder, name);
    if (!region) return report(region.error(), runtime_folder);
    if (raw || region->layout().is_zero()) {
      const auto written = region->read(write_out);
      return written ? 0 : report(written.error(), runtime_folder);
    }
    version = region->version();
  }
  auto words = python_words("cat", name, version);
  words.insert(words.end(), {"--", name.name});
  return run_python(runtime_folder, std::move(words));
}

int verify_region(const std::filesystem::path& runtime_folder, const RegionName& name,
                  const std::filesystem::path& file, bool json) {
  std::error_code failed;
  if (std::filesystem::exists(file, failed) && !std::filesystem::is_regular_file(file, failed))
    return report(Error{Code::kInvalidArgument, file.string() + " is not a regular file"});
  std::uint64_t version = 0;
  {
    const auto region = RegionReader::open(runtime_folder, name);
    if (!region) return report(region.error(), runtime_folder);
    version = region->version();
    if (region->layout().is_zero() || !is_safetensors(file)) {
      const auto found = compare_bytes(*region, file);
      if (!found) return report(found.error(), runtime_folder);
      std::cout << (json ? json_text(comparison_json(name, version, *found))
                         : printable_lines(comparison_text(name, file.string(), *found)))
                << std::flush;
      return found->difference || !std::cout ? 1 : 0;
    }
  }
  auto words = python_words("verify", name, version);
  if (json) words.emplace_back("--json");
  words.insert(words.end(), {"--", name.name, file.string()});
  return run_python(runtime_folder, std::move(words));
}

}  // namespace gpumem::cli
