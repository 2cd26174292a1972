#pragma once
#include <atomic>
#include <cstdint>

namespace gpumem::allocator {

/// Streams by their place in the table of streams. Zero: none, all work is done.
using StreamIndex = std::uint16_t;
/// Thread caches by number. Zero: none.
using CacheNumber = std::uint16_t;

inline constexpr StreamIndex kNoStream = 0;
inline constexpr std::size_t kMaxStreams = 4096;

/// What is known of one block, in one word, so that it changes at once.
/// Bits  0-1 state, 2-21 the bytes asked for less one, 22-33 stream, 34-41 tag, 42-57 the thread cache that
/// has it or
///       handed it out.
class BlockWord {
 public:
  enum State : std::uint64_t { kFree = 0, kUsed = 1, kCached = 2 };
  static constexpr std::uint64_t kBytesMost = std::uint64_t{1} << 20;

  constexpr BlockWord() = default;
  constexpr explicit BlockWord(std::uint64_t bits) : bits_(bits) {}
  /// Of a block in use, one byte long.
  static constexpr BlockWord used(StreamIndex stream, std::uint8_t tag, CacheNumber cache) {
    return BlockWord(kUsed | std::uint64_t{stream} << 22 | std::uint64_t{tag} << 34 |
                     std::uint64_t{cache} << 42);
  }
  static constexpr BlockWord cached(CacheNumber cache) {
    return BlockWord(kCached | std::uint64_t{cache} << 42);
  }
  /// The same for a block of `bytes`, 1 to kBytesMost, of one that is one byte long.
  constexpr BlockWord with_bytes(std::uint64_t bytes) const { return BlockWord(bits_ + ((bytes - 1) << 2)); }

  constexpr State state() const { return static_cast<State>(bits_ & 3); }
  /// Asked for; of blocks without a class the piece knows it.
  constexpr std::uint64_t bytes() const { return (bits_ >> 2 & (kBytesMost - 1)) + 1; }
  constexpr StreamIndex stream() const { return static_cast<StreamIndex>(bits_ >> 22 & 0xfff); }
  constexpr std::uint8_t tag() const { return static_cast<std::uint8_t>(bits_ >> 34 & 0xff); }
  constexpr CacheNumber cache() const { return static_cast<CacheNumber>(bits_ >> 42 & 0xffff); }
  constexpr std::uint64_t bits() const { return bits_; }
  constexpr bool operator==(const BlockWord&) const = default;

 private:
  std::uint64_t bits_ = 0;
};

/// One block: of a run, or a piece of its own.
/// Threads  any may read. Written by who has the block: the thread that it was handed to, the thread whose
///          cache has it, or else under the allocator's lock.
struct Slot {
  std::atomic<std::uint64_t> word{0};
  std::atomic<std::uint32_t> born{0};  ///< when it was handed out, in seconds of the allocator's life

  BlockWord get() const { return BlockWord(word.load(std::memory_order_relaxed)); }
  void set(BlockWord to) { word.store(to.bits(), std::memory_order_relaxed); }
};

}  // namespace gpumem::allocator
