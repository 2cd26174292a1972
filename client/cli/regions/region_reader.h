#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "gpumem/session.h"

namespace gpumem::cli {

/// The host memory through which files and devices exchange bytes: one piece, however much there is.
class Staging {
 public:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;

  /// `driver`  outlives it.
  explicit Staging(const cuda::Driver& driver) : driver_(driver), bytes_(kBytes) {}

  std::span<char> bytes() { return bytes_; }
  /// Copies the first `count` bytes to the device's address. In a context of the device. They may be there
  /// only after finish(). Errors  the driver's.
  Result<void> store(std::uint64_t address, std::size_t count) const;
  /// Waits until all that was stored is there for other processes, too. Errors  the driver's.
  Result<void> finish() const;
  /// Fills the first `count` bytes from the device's address. The same.
  Result<void> load(std::uint64_t address, std::size_t count);

 private:
  const cuda::Driver& driver_;
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

}  // namespace gpumem::cli
