#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "gpumem/bytes.h"

// The sizes that blocks come in: multiples of 256 bytes up to 4 KiB, then 16 sizes a doubling up to 1 MiB,
// beyond it any. Up to 16 KiB a block is a slot of a run, beyond it a piece of the heap.

namespace gpumem::allocator {

using ClassIndex = std::uint32_t;

inline constexpr std::uint64_t kAlignment = 256;  ///< of every block
inline constexpr std::uint64_t kQuantum = 1024;   ///< sizes and addresses of pieces are multiples of it
inline constexpr std::uint64_t kGranule = kibibytes(16).count;   ///< in each at most one piece in use begins
inline constexpr std::uint64_t kSlotMost = kibibytes(16).count;  ///< larger blocks are pieces
inline constexpr std::uint64_t kClassMost = mebibytes(1).count;  ///< larger blocks have no class

/// The next multiple of `unit`; the caller's amounts are far below 2^64.
constexpr std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

inline constexpr ClassIndex kSlotClasses = 48;
inline constexpr ClassIndex kClasses = 144;
inline constexpr ClassIndex kNoClass =
    kClasses;  ///< of blocks over kClassMost, and of those that were extended

/// The class of blocks of `bytes`, from 1 to kClassMost.
constexpr ClassIndex class_of(std::uint64_t bytes) {
  const std::uint64_t last = bytes - 1;
  if (bytes <= 4096) return static_cast<ClassIndex>(last >> 8);
  const auto power = static_cast<unsigned>(std::bit_width(last) - 1);
  return static_cast<ClassIndex>(16 + (power - 12) * 16 + ((last >> (power - 4)) & 15));
}

namespace detail {
consteval std::array<std::uint32_t, kClasses> class_sizes() {
  std::array<std::uint32_t, kClasses> sizes{};
  for (std::uint64_t bytes = kAlignment; bytes <= kClassMost;
       bytes += bytes < kSlotMost ? kAlignment : kQuantum) {
    sizes[class_of(bytes)] = static_cast<std::uint32_t>(bytes);
  }
  return sizes;
}

// The run among 32 to 128 KiB of which the slots leave the least.
constexpr std::uint32_t run_size(std::uint64_t slot) {
  std::uint64_t best = 0;
  double least = 1;
  for (std::uint64_t run = 2 * kGranule; run <= 8 * kGranule; run += kGranule) {
    const double lost = static_cast<double>(run % slot) / static_cast<double>(run);
    if (lost >= least) continue;
    least = lost;
    best = run;
  }
  return static_cast<std::uint32_t>(best);
}
}  // namespace detail

/// The largest block of each class: what each of its blocks takes.
inline constexpr std::array<std::uint32_t, kClasses> kClassBytes = detail::class_sizes();

/// What the runs of each class of slots take.
inline constexpr std::array<std::uint32_t, kSlotClasses> kRunBytes = [] {
  std::array<std::uint32_t, kSlotClasses> runs{};
  for (ClassIndex i = 0; i < kSlotClasses; ++i) runs[i] = detail::run_size(kClassBytes[i]);
  return runs;
}();

/// Which slot of `slot_bytes` lies at `offset` in a run: reciprocal_of(slot_bytes) times the offset.
constexpr std::uint32_t reciprocal_of(std::uint32_t slot_bytes) {
  const std::uint64_t units = slot_bytes / kAlignment;
  return static_cast<std::uint32_t>((65536 + units - 1) / units);
}
constexpr std::uint64_t slot_at(std::uint64_t offset, std::uint32_t reciprocal) {
  return (offset / kAlignment * reciprocal) >> 16;
}

}  // namespace gpumem::allocator
