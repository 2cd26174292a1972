#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "gpumem/result.h"

// A region in a file: a head, and the region's bytes. `gpumem.saved` (Python) writes and reads the same.

namespace gpumem::cli {

using Sha256 = std::array<unsigned char, 32>;

/// What stands before the bytes. Numbers are little-endian.
struct SavedHead {
  static constexpr std::size_t kBytes = 88;
  static constexpr std::size_t kChecksumAt = kBytes - sizeof(Sha256);
  using Text = std::array<char, kBytes>;

  std::uint64_t size = 0;    ///< of the region
  std::uint64_t layout = 0;  ///< of its last bytes: what is in it
  Sha256 digest{};           ///< of the layout, as its publisher says
  Sha256 checksum{};         ///< of the head up to here, and of the bytes

  Text text() const;
  /// Of a file whose beginning is `text` and that has `bytes` in all. Errors  kInvalidArgument: it is no
  /// saved region, or a truncated one; without the file's name.
  static Result<SavedHead> parse(const Text& text, std::uint64_t bytes);
};

/// SHA-256 of what is added.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(std::span<const char> bytes);
  /// The head without its own checksum.
  void add_head(const SavedHead& head);
  /// Once.
  Sha256 finish();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace gpumem::cli
