#pragma once
#include <boost/intrusive/set.hpp>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/allocator/backing.h"
#include "client/allocator/size_class.h"
#include "client/allocator/slot.h"

namespace gpumem::allocator {

/// Adjacent mapped addresses with one use. Never moves, and is used again rather than deleted while the
/// allocator lives, so that who holds an old pointer to it reads something.
struct Piece : boost::intrusive::set_base_hook<> {
  enum class Use : std::uint8_t { kFree, kRun, kBlock };

  // What every freeing looks at.
  Address base = 0;
  Slot* slots = nullptr;         ///< a run's, or `own`
  std::uint32_t slot_bytes = 0;  ///< what each block of the class takes
  std::uint32_t reciprocal = 0;  ///< of a run's slot_bytes; zero: one block
  ClassIndex size_class = kNoClass;

  std::uint32_t slot_count = 1;
  std::uint64_t bytes = 0;
  Piece* before = nullptr;  ///< the piece that ends where this begins, if one does
  Piece* after = nullptr;   ///< the piece that begins where this ends, if one does
  Use use = Use::kFree;
  bool small = false;              ///< lies in a unit for small pieces
  StreamIndex stream = kNoStream;  ///< free: whose work may still use it. Run: whose its free slots are
  std::uint64_t epoch = 0;         ///< the stream's when it, or the last of a run's slots, became free

  // In use.
  Slot own;
  std::uint64_t asked = 0;                ///< kNoClass
  Address room_end = 0;                   ///< kNoClass: addresses behind it that are kept for it
  std::vector<std::uint16_t> free_slots;  ///< of a run; those of its own stream
  Piece* shelf_before = nullptr;          ///< among the runs with free slots
  Piece* shelf_after = nullptr;

  Address end() const { return base + bytes; }
  bool is_free() const { return use == Use::kFree; }

  /// Best fit: by size, then by address.
  friend bool operator<(const Piece& a, const Piece& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.base < b.base;
  }
};

using FreeSet = boost::intrusive::set<Piece>;

}  // namespace gpumem::allocator
