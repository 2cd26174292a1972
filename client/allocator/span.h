#pragma once
#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/allocator/backing.h"
#include "client/allocator/size_class.h"
#include "client/allocator/slot.h"

namespace gpumem::allocator {

/// Adjacent mapped addresses with one use. The object never moves. It is recycled, not deleted, while the
/// allocator lives, so that an old pointer to it can still be read.
struct Span : boost::intrusive::set_base_hook<>, boost::intrusive::list_base_hook<> {
  enum class Use : std::uint8_t { kFree, kSlab, kBlock };

  // Read by every free.
  Address base = 0;
  Slot* slots = nullptr;         ///< a slab's, or `own`
  std::uint32_t slot_bytes = 0;  ///< bytes that each block of the class takes
  std::uint32_t reciprocal = 0;  ///< of a slab's slot_bytes; zero: one block
  ClassIndex size_class = kNoClass;

  std::uint32_t slot_count = 1;
  std::uint64_t bytes = 0;
  Span* before = nullptr;  ///< the span that ends where this begins, if one does
  Span* after = nullptr;   ///< the span that begins where this ends, if one does
  Use use = Use::kFree;
  bool small = false;              ///< lies in a unit for small spans
  StreamIndex stream = kNoStream;  ///< free: its work may still use it. Slab: owner of its free slots
  std::uint64_t epoch = 0;         ///< the stream's, when it or the slab's last slot became free

  // In use.
  Slot own;
  std::uint64_t requested = 0;            ///< kNoClass
  Address room_end = 0;                   ///< kNoClass: end of the addresses reserved after it
  std::vector<std::uint16_t> free_slots;  ///< of a slab; those of its own stream

  Address end() const { return base + bytes; }
  /// The slot of the block that begins at `address`. Null if none can begin there.
  Slot* slot_of(Address address) const {
    const std::uint64_t offset = address - base;
    const std::uint64_t slot = slot_at(offset, reciprocal);
    return slot * slot_bytes == offset ? &slots[slot] : nullptr;
  }
  bool is_free() const { return use == Use::kFree; }

  /// Best fit: by size, then by address.
  friend bool operator<(const Span& a, const Span& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.base < b.base;
  }
};

using FreeSet = boost::intrusive::set<Span>;
using SlabList = boost::intrusive::list<Span>;

}  // namespace gpumem::allocator
