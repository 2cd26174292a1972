#pragma once

#include <sys/mman.h>
#include <array>
#include <atomic>
#include <bit>
#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "client/allocator/backing.h"
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
  /// The word of a block that is in the cache, free for `stream`.
  static constexpr BlockWord cached(CacheNumber cache, StreamIndex stream) {
    return BlockWord(kCached | std::uint64_t{stream} << 22 | std::uint64_t{cache} << 42);
  }
  /// The word of a block on its way between caches.
  static constexpr BlockWord in_batch() { return BlockWord(kCached); }
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
/// recycled, not deleted, while the allocator lives, so that an old pointer to it can still be read. A search
/// of a set reads one cache line of each object.
struct alignas(64) Span : boost::intrusive::set_base_hook<>, boost::intrusive::list_base_hook<> {
  enum class Use : std::uint8_t {
    kFree,
    kSlab,
    kBlock,
    kGap,       ///< not mapped, for any memory
    kReserved,  ///< room of a block, or an alias: for no other memory
  };

  Address base = 0;
  std::uint64_t bytes = 0;

  // Read by every free, with `base`.
  Slot* slots = nullptr;         ///< a slab's, or `own`
  std::uint32_t slot_bytes = 0;  ///< bytes that each block of the class takes
  std::uint32_t reciprocal = 0;  ///< of a slab's slot_bytes; zero: one block
  ClassIndex size_class = kNoClass;

  std::uint32_t slot_count = 1;
  Span* before = nullptr;  ///< ends where this begins
  Span* after = nullptr;   ///< begins where this ends
  Use use = Use::kFree;
  bool has_room = false;           ///< in use: placed in addresses that are reserved for it
  StreamIndex stream = kNoStream;  ///< free: its work may still use it. Slab: owner of its free slots
  std::uint64_t epoch = 0;         ///< the stream's, when it or the slab's last slot became free

  // In use.
  std::uint64_t requested = 0;  ///< kNoClass
  Slot own;
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

/// Finds the span in use that an address belongs to. One pointer for each granule, in host memory that is
/// committed only where it was written.
/// Threads  find: any. The rest: one at a time.
class AddressMap {
 public:
  /// Throws std::bad_alloc: the process has no addresses for the table.
  AddressMap(Address base, Bytes addresses) : base_(base), count_(addresses.count / kGranule) {
    void* table = ::mmap(nullptr, count_ * sizeof(std::atomic<Span*>), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED) throw std::bad_alloc();
    entries_ = static_cast<std::atomic<Span*>*>(table);
  }
  AddressMap(const AddressMap&) = delete;
  AddressMap& operator=(const AddressMap&) = delete;
  ~AddressMap() { ::munmap(entries_, count_ * sizeof(std::atomic<Span*>)); }

  /// The slab that contains `address`, else the span that begins in its granule, else null.
  Span* find(Address address) const {
    const std::uint64_t granule = (address - base_) / kGranule;
    return granule < count_ ? entries_[granule].load(std::memory_order_acquire) : nullptr;
  }
  /// Adds `span`, which is in use: a slab for all its granules, a block for the granule it begins in.
  void enter(Span& span) { set(span, &span); }
  void remove(Span& span) { set(span, nullptr); }

 private:
  void set(const Span& span, Span* to) {
    const std::uint64_t first = (span.base - base_) / kGranule;
    const std::uint64_t granules = span.use == Span::Use::kSlab ? span.bytes / kGranule : 1;
    for (std::uint64_t i = first; i < first + granules; ++i) entries_[i].store(to, std::memory_order_release);
  }

  const Address base_;
  const std::uint64_t count_;
  std::atomic<Span*>* entries_ = nullptr;
};

}  // namespace gpumem::allocator
