#pragma once
#include <atomic>
#include <cstddef>

#include "client/allocator/piece.h"

namespace gpumem::allocator {

/// Finds the piece in use that an address belongs to: one pointer a granule, in host memory that is there
/// only where it was written. Threads  find: any. The rest: one at a time.
class AddressMap {
 public:
  /// Errors  kResourceExhausted: no address space for the table.
  static Result<AddressMap> create(Address base, Bytes addresses);
  AddressMap() = default;
  AddressMap(AddressMap&& other) noexcept;
  AddressMap& operator=(AddressMap&& other) noexcept;
  ~AddressMap();

  /// The run that has `address`, or the piece that begins in its granule; null: neither.
  Piece* find(Address address) const {
    const std::uint64_t granule = (address - base_) / kGranule;
    return granule < count_ ? entries_[granule].load(std::memory_order_acquire) : nullptr;
  }
  /// `piece` is in use from now on: a run with all its granules, a block with the one it begins in.
  void enter(Piece& piece) { set(piece, &piece); }
  void remove(Piece& piece) { set(piece, nullptr); }
  /// Knows nothing any more. find: still any.
  void clear();

 private:
  AddressMap(Address base, std::uint64_t count, std::atomic<Piece*>* entries)
      : base_(base), count_(count), entries_(entries) {}
  void set(const Piece& piece, Piece* to);

  Address base_ = 0;
  std::uint64_t count_ = 0;
  std::atomic<Piece*>* entries_ = nullptr;
};

}  // namespace gpumem::allocator
