#pragma once
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/allocator/backing.h"
#include "client/allocator/size_class.h"

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

/// A free block of a class.
struct Block {
  Address address = 0;
  Slot* slot = nullptr;
};

/// Adjacent addresses with one use, mapped unless they are a gap or reserved. The object never moves. It is
/// recycled, not deleted, while the allocator lives, so that an old pointer to it can still be read.
struct Span : boost::intrusive::set_base_hook<>, boost::intrusive::list_base_hook<> {
  enum class Use : std::uint8_t {
    kFree,
    kSlab,
    kBlock,
    kGap,       ///< not mapped, for any memory
    kReserved,  ///< room of a block, or an alias: for no other memory
  };

  // Read by every free.
  Address base = 0;
  Slot* slots = nullptr;         ///< a slab's, or `own`
  std::uint32_t slot_bytes = 0;  ///< bytes that each block of the class takes
  std::uint32_t reciprocal = 0;  ///< of a slab's slot_bytes; zero: one block
  ClassIndex size_class = kNoClass;

  std::uint32_t slot_count = 1;
  std::uint64_t bytes = 0;
  Span* before = nullptr;  ///< ends where this begins
  Span* after = nullptr;   ///< begins where this ends
  Use use = Use::kFree;
  StreamIndex stream = kNoStream;  ///< free: its work may still use it. Slab: owner of its free slots
  std::uint64_t epoch = 0;         ///< the stream's, when it or the slab's last slot became free

  // In use.
  Slot own;
  std::uint64_t requested = 0;            ///< kNoClass
  bool has_room = false;                  ///< placed in addresses that are reserved for it
  std::vector<std::uint16_t> free_slots;  ///< of a slab; those of its own stream

  Address end() const { return base + bytes; }
  /// The slot of the block that begins at `address`. Null if none can begin there.
  Slot* slot_of(Address address) const {
    const std::uint64_t offset = address - base;
    const std::uint64_t slot = slot_at(offset, reciprocal);
    return slot * slot_bytes == offset ? &slots[slot] : nullptr;
  }
  bool is_free() const { return use == Use::kFree; }
  bool is_gap() const { return use == Use::kGap; }
  bool is_unused() const { return is_free() || is_gap(); }
  bool is_in_use() const { return use == Use::kSlab || use == Use::kBlock; }

  /// Best fit: by size, then by address.
  friend bool operator<(const Span& a, const Span& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.base < b.base;
  }
};

using FreeSet = boost::intrusive::set<Span>;
using SlabList = boost::intrusive::list<Span>;

}  // namespace gpumem::allocator
