#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "gpumem/bytes.h"

// Size classes: multiples of 256 bytes up to 4 KiB, then 16 sizes for each doubling up to 1 MiB. Larger
// blocks have no class. Blocks up to 16 KiB are slab slots; larger ones are spans.

namespace gpumem::allocator {

using ClassIndex = std::uint32_t;

inline constexpr std::uint64_t kAlignment = 256;  ///< of every block
inline constexpr std::uint64_t kQuantum = 1024;   ///< sizes and addresses of spans are multiples of it
inline constexpr std::uint64_t kGranule = kibibytes(16).count;   ///< at most one span in use begins in each
inline constexpr std::uint64_t kSlotMost = kibibytes(16).count;  ///< larger blocks are spans
inline constexpr std::uint64_t kClassMost = mebibytes(1).count;  ///< larger blocks have no class

/// The next multiple of `unit`. `bytes` must be far below 2^64.
constexpr std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

inline constexpr ClassIndex kSlotClasses = 48;
inline constexpr ClassIndex kClasses = 144;
inline constexpr ClassIndex kNoClass = kClasses;  ///< blocks over kClassMost, and those that were extended

/// The class of blocks of `bytes`; kNoClass if these are none or more than kClassMost.
constexpr ClassIndex class_of(std::uint64_t bytes) {
  const std::uint64_t last = bytes - 1;
  if (last < 4096) return static_cast<ClassIndex>(last >> 8);
  if (last >= kClassMost) return kNoClass;
  const auto power = static_cast<unsigned>(std::bit_width(last) - 1);
  return static_cast<ClassIndex>(16 + (power - 12) * 16 + ((last >> (power - 4)) & 15));
}

/// The largest block of each class, which is what each of its blocks takes.
inline constexpr auto kClassBytes = [] {
  std::array<std::uint32_t, kClasses> sizes{};
  for (std::uint64_t bytes = kAlignment; bytes <= kClassMost;
       bytes += bytes < kSlotMost ? kAlignment : kQuantum) {
    sizes[class_of(bytes)] = static_cast<std::uint32_t>(bytes);
  }
  return sizes;
}();

/// The slab size of each slot class: the one among 32 to 128 KiB that wastes the smallest part.
inline constexpr auto kSlabBytes = [] {
  std::array<std::uint32_t, kSlotClasses> slabs{};
  for (ClassIndex i = 0; i < kSlotClasses; ++i) {
    std::uint64_t best = 2 * kGranule;
    for (std::uint64_t slab = best; slab <= 8 * kGranule; slab += kGranule) {
      if (slab % kClassBytes[i] * best < best % kClassBytes[i] * slab) best = slab;
    }
    slabs[i] = static_cast<std::uint32_t>(best);
  }
  return slabs;
}();

/// Division by multiplication: the slot at `offset` in a slab is slot_at(offset, reciprocal_of(slot_bytes)).
constexpr std::uint32_t reciprocal_of(std::uint32_t slot_bytes) {
  const std::uint64_t units = slot_bytes / kAlignment;
  return static_cast<std::uint32_t>((65536 + units - 1) / units);
}
constexpr std::uint64_t slot_at(std::uint64_t offset, std::uint32_t reciprocal) {
  return (offset / kAlignment * reciprocal) >> 16;
}

}  // namespace gpumem::allocator
