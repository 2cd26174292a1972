#pragma once
#include <atomic>
#include <cstdint>

namespace gpumem::allocator {

/// Index in the table of streams. Zero: no stream, all work is done.
using StreamIndex = std::uint16_t;
/// Thread caches by number. Zero: none.
using CacheNumber = std::uint16_t;

inline constexpr StreamIndex kNoStream = 0;
inline constexpr std::size_t kMaxStreams = 4096;

/// The state of one block in one word, so that it changes atomically.
/// Bits  0-1 state, 2-21 requested bytes minus one, 22-33 stream, 34-41 tag, 42-57 thread cache that has it
///       or handed it out, 58 other streams are recorded.
class BlockWord {
 public:
  enum State : std::uint64_t { kFree = 0, kUsed = 1, kCached = 2 };
  static constexpr std::uint64_t kBytesMost = std::uint64_t{1} << 20;

  constexpr BlockWord() = default;
  constexpr explicit BlockWord(std::uint64_t bits) : bits_(bits) {}
  /// The word of a block in use that is one byte long.
  static constexpr BlockWord used(StreamIndex stream, std::uint8_t tag, CacheNumber cache) {
    return BlockWord(kUsed | std::uint64_t{stream} << 22 | std::uint64_t{tag} << 34 |
                     std::uint64_t{cache} << 42);
  }
  static constexpr BlockWord cached(CacheNumber cache) {
    return BlockWord(kCached | std::uint64_t{cache} << 42);
  }
  /// This word, which is that of a one-byte block, for a block of `bytes`, 1 to kBytesMost.
  constexpr BlockWord with_bytes(std::uint64_t bytes) const { return BlockWord(bits_ + ((bytes - 1) << 2)); }

  /// This word, for a block of one byte.
  constexpr BlockWord without_bytes() const { return BlockWord(bits_ & ~((kBytesMost - 1) << 2)); }
  /// This word, for a block that streams are recorded for. No thread's cache takes such a block.
  constexpr BlockWord with_recorded_streams() const { return BlockWord(bits_ | kRecorded); }

  constexpr State state() const { return static_cast<State>(bits_ & 3); }
  /// The requested size. For blocks without a class, Span::requested has it.
  constexpr std::uint64_t bytes() const { return (bits_ >> 2 & (kBytesMost - 1)) + 1; }
  constexpr StreamIndex stream() const { return static_cast<StreamIndex>(bits_ >> 22 & 0xfff); }
  constexpr std::uint8_t tag() const { return static_cast<std::uint8_t>(bits_ >> 34 & 0xff); }
  constexpr CacheNumber cache() const { return static_cast<CacheNumber>(bits_ >> 42 & 0xffff); }
  constexpr bool has_recorded_streams() const { return (bits_ & kRecorded) != 0; }
  constexpr std::uint64_t bits() const { return bits_; }
  constexpr bool operator==(const BlockWord&) const = default;

 private:
  static constexpr std::uint64_t kRecorded = std::uint64_t{1} << 58;

  std::uint64_t bits_ = 0;
};

/// The state of a slab slot, or of a span that is one block.
/// Threads  any may read. It is written by the thread that has the block or whose cache has it, else under
///          the allocator's lock.
struct Slot {
  std::atomic<std::uint64_t> word{0};
  std::atomic<std::uint32_t> born{0};  ///< when it was handed out, in seconds of the allocator's life

  BlockWord get() const { return BlockWord(word.load(std::memory_order_relaxed)); }
  void set(BlockWord to) { word.store(to.bits(), std::memory_order_relaxed); }
};

}  // namespace gpumem::allocator
