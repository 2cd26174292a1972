#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gpumem/result.h"

namespace gpumem::cli {

/// The bytes that a region is published from, read once and in order.
class RegionSource {
 public:
  RegionSource() = default;
  RegionSource(const RegionSource&) = delete;
  RegionSource& operator=(const RegionSource&) = delete;
  virtual ~RegionSource() = default;

  /// For messages.
  virtual std::string name() const = 0;
  /// Before the others. Errors  name the file, and say what is wrong with it.
  virtual Result<void> open() = 0;
  virtual std::uint64_t size() const = 0;
  /// Of the region's last bytes: what is in it, and the digest of that. None, unless the source knows.
  virtual std::uint64_t layout() const { return 0; }
  virtual std::array<unsigned char, 32> digest() const { return {}; }
  /// That the layout speaks of. None: it is of bytes.
  virtual std::uint64_t arrays() const { return 0; }
  /// Fills the first bytes of `piece`. Answers how many: one at least. Errors  it ends here.
  virtual Result<std::size_t> read(std::span<char> piece) = 0;
  /// After all of it was read, before it is published. Errors  it is not what it should be.
  virtual Result<void> check() { return {}; }
};

}  // namespace gpumem::cli
