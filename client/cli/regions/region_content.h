#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/memory.h"
#include "gpumem/session.h"

namespace gpumem::cli {

/// The host memory through which files exchange bytes with a device or with the host store: one piece,
/// however much there is.
class Staging {
 public:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;

  /// `driver_folder`  where the driver is. `ordinal`  of the device; negative: the host store, which needs no
  /// driver. Errors  the driver's.
  static Result<Staging> open(const std::string& driver_folder, int ordinal);

  std::span<char> bytes() { return bytes_; }
  /// Copies the first `count` bytes to the address. They may be there only after finish(). Errors  the
  /// driver's.
  Result<void> store(std::uint64_t address, std::size_t count) const;
  /// Waits until all that was stored is there for other processes, too. Errors  the driver's.
  Result<void> finish() const;
  /// Fills the first `count` bytes from the address. The same.
  Result<void> load(std::uint64_t address, std::size_t count);

 private:
  explicit Staging(const cuda::Driver* driver) : driver_(driver), bytes_(kBytes) {}

  const cuda::Driver* driver_;  ///< null: of the host store
  std::optional<cuda::CurrentContext> context_;
  std::vector<char> bytes_;
};

/// Which region, as the command line says.
struct RegionName {
  std::string name;
  std::string owner;                  ///< a tenant; empty: the caller's
  std::uint64_t version = 0;          ///< 0: the newest
  std::uint64_t newer_than = 0;       ///< with version 0: a newer one than this; 0: any
  std::chrono::milliseconds wait{0};  ///< for it to be published
};

/// A region mapped for reading by a session of its own.
class RegionReader {
 public:
  /// Errors  as Session::connect and Session::map_region.
  static Result<RegionReader> open(const std::filesystem::path& runtime_folder, const RegionName& name);

  Bytes size() const { return region_.size(); }
  std::uint64_t version() const { return region_.version(); }
  /// So many of its last bytes say what is in it.
  Bytes layout() const { return region_.layout(); }
  using Take = std::function<Result<bool>(std::span<const char> piece)>;

  /// Gives the bytes to `take`, piece by piece, until that answers false or an error.
  /// Errors  the driver's, and what `take` answers.
  Result<void> read(const Take& take) const;

 private:
  RegionReader(Session session, Region region) : session_(std::move(session)), region_(std::move(region)) {}

  Session session_;
  Region region_;
};

/// `gpumem cat`: the region's bytes on standard output. Of a region with a layout, Python writes a file of
/// safetensors, in place of this program, unless `raw`. Answers the exit status.
int cat_region(const std::filesystem::path& runtime_folder, const RegionName& name, bool raw);

/// `gpumem verify`: whether the region's bytes are the file's, and where they first differ. Of a region with
/// a layout and a file of safetensors, Python compares those that the file is published as. Answers the exit
/// status: 0 equal, 1 not, or as report().
int verify_region(const std::filesystem::path& runtime_folder, const RegionName& name,
                  const std::filesystem::path& file, bool json);

/// Runs Python's `gpumem.safetensors` in place of this program, with the `words` of its command line.
/// Answers the exit status, after saying why, if there is no `python3` on the PATH.
int run_python(const std::filesystem::path& runtime_folder, std::vector<std::string> words);

}  // namespace gpumem::cli
