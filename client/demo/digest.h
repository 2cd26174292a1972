#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace gpumem::demo {

/// A 64-bit checksum (FNV-1a over words) of data that comes in pieces: enough to see a wrong byte.
class Digest {
 public:
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const { return state_; }
  bool operator==(const Digest&) const = default;

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace gpumem::demo
