#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/result.h"

// Which arrays are in a region, as its last bytes say. gpumem.layout (Python) writes and reads the same
// bytes; docs/regions-python.md has the format.

namespace gpumem::cli {

/// A type of elements.
struct Dtype {
  std::string_view name;         ///< as NumPy's
  std::uint64_t size;            ///< bytes of an element
  std::string_view safetensors;  ///< in a file of safetensors; empty: there is none
};

/// Null: no type is called so.
const Dtype* dtype_of(std::string_view name);
const Dtype* dtype_of_safetensors(std::string_view name);

using Texts = std::map<std::string, std::string>;
using Shape = std::vector<std::uint64_t>;

struct ArrayPlace {
  const Dtype* dtype = nullptr;
  std::string name;
  std::uint64_t offset = 0;  ///< bytes, from the region's first
  bool is_private = false;   ///< readers get a copy of their own, by default
  Shape shape;
  Shape strides;   ///< bytes
  Texts metadata;  ///< of this array

  /// Of its elements.
  std::uint64_t bytes() const;
};

constexpr std::uint64_t kMostArrayBytes = (std::uint64_t{1} << 63) - 1;
constexpr std::size_t kMostArrays = std::size_t{1} << 17;
constexpr std::size_t kMostDimensions = 32;
constexpr std::uint64_t kArrayAlignment = 256;  ///< bytes

/// Bytes of an array of this shape. Errors  kInvalidArgument: 2^63 or more, also if another dimension is 0.
Result<std::uint64_t> bytes_of_shape(const Shape& shape, std::uint64_t element);
/// In C's order, without gaps.
Shape contiguous_strides(const Shape& shape, std::uint64_t element);
/// Rounded up to kArrayAlignment.
std::uint64_t array_aligned(std::uint64_t bytes);

struct ArrayLayout {
  static constexpr std::size_t kMostBytes = std::size_t{32} << 20;

  std::vector<ArrayPlace> arrays;
  Texts metadata;

  /// One layout has one encoding. Texts are UTF-8. Errors  kInvalidArgument: over kMostBytes.
  Result<std::string> encode() const;
  /// Whether a region's last bytes begin as an encoding does.
  static bool is_encoded(std::string_view bytes);
  /// From what encode() has made: of arrays that are in C's order without gaps, with names that differ, in
  /// the region's `room` bytes before the layout and not over each other. Errors  kInvalidArgument: the
  /// bytes, which may be anybody's, are no such encoding; the words say why, and of which array.
  static Result<ArrayLayout> decode(std::string_view bytes, std::uint64_t room);
};

/// SHA-256, as a region's publisher says it.
std::array<unsigned char, 32> digest_of(std::string_view encoded);

}  // namespace gpumem::cli
