#pragma once
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gpumem/session.h"

namespace gpumem::cli {

/// Which region, as the command line says.
struct RegionName {
  std::string name;
  std::string owner;                  ///< a tenant; empty: the caller's
  std::uint64_t version = 0;          ///< 0: the newest
  std::chrono::milliseconds wait{0};  ///< for it to be published
};

/// A region mapped for reading by a session of its own.
class RegionReader {
 public:
  /// Errors  as Session::connect and Session::map_region.
  static Result<RegionReader> open(const std::filesystem::path& runtime_folder, const RegionName& name);

  Bytes size() const { return region_.size(); }
  std::uint64_t version() const { return region_.version(); }
  /// Of its last bytes: what is in it, and the digest of that.
  Bytes layout() const { return region_.layout(); }
  std::array<unsigned char, 32> digest() const { return region_.digest(); }
  /// Some of the region's bytes.
  struct Range {
    std::uint64_t begin;
    std::uint64_t size;
  };
  using Take = std::function<Result<bool>(std::span<const char> piece)>;

  /// Gives the bytes to `take`, piece by piece, until that answers false or an error.
  /// Errors  the driver's, and what `take` answers.
  Result<void> read(const Take& take) const { return read({{0, size().count}}, take); }
  /// The same of the ranges, which lie within the region, one after the other.
  Result<void> read(const std::vector<Range>& ranges, const Take& take) const;
  /// A copy of the layout's bytes. Errors  kInvalidArgument: it is larger than layouts are; the driver's.
  Result<std::string> read_layout() const;

 private:
  RegionReader(Session session, Region region) : session_(std::move(session)), region_(std::move(region)) {}

  Session session_;
  Region region_;
};

}  // namespace gpumem::cli
