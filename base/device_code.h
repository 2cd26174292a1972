#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "gpumem/bytes.h"

namespace gpumem {

/// Copies `size` bytes from `offset` of an image; false: they are not all there.
using ReadImage = std::function<bool(std::uint64_t offset, void* to, std::size_t size)>;

/// Reads an image in this process's memory whose size is unknown. A read of unmapped memory returns false; so
/// does every read where the kernel does not let a process read itself (seccomp).
ReadImage image_at(const void* address);

/// Forms of device code: ELF is code for one architecture, a fat binary has several of them, and PTX is text.
enum class CodeForm { kElf, kFatBinary, kText };
CodeForm form_of(const ReadImage& image);

/// The bytes that the global variables of `image` take of a device when it is loaded: as ELF and PTX declare
/// them. Of a fat binary, those of the code that a device takes whose architecture is `architecture`, 90 for
/// sm_90. Zero: it has none, or nothing is known of it, because it is compressed or damaged.
/// Threads  any. Reads all of PTX, and tables alone of the others.
Bytes variables_of(const ReadImage& image, unsigned architecture);

/// Of PTX alone. Left out are arrays without a length, whose initializer is in the text, and those whose
/// length is more than literals, WARP_SZ, + - * / % << >> and parentheses.
Bytes variables_of_text(const std::string& text);

inline constexpr std::uint64_t kMostBytes = std::numeric_limits<std::uint64_t>::max();

/// What would be more than kMostBytes is kMostBytes.
constexpr std::uint64_t capped_sum(std::uint64_t a, std::uint64_t b) {
  return a + std::min(b, kMostBytes - a);
}
constexpr std::uint64_t capped_product(std::uint64_t a, std::uint64_t b) {
  return a != 0 && b > kMostBytes / a ? kMostBytes : a * b;
}

}  // namespace gpumem
