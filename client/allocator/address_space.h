#pragma once
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "client/allocator/backing.h"

namespace gpumem::allocator {

/// The allocator's reserved address range: which extent is mapped where, and which addresses are free.
/// Bookkeeping only; it calls no driver.
/// Invariant  every address is in one mapped extent, in one gap, or reserved: as room of a block, or as
/// alias.
class AddressSpace {
 public:
  AddressSpace(Address base, Bytes addresses);

  struct Range {
    Address from = 0;
    Address to = 0;
    std::uint64_t bytes() const { return to - from; }
  };

  Bytes mapped() const { return mapped_; }
  std::size_t count() const { return extents_.size(); }

  /// The extents that lie wholly within [from, to), which is fully mapped. Empty if there are none.
  Range whole_within(Address from, Address to) const;
  /// The extents of `range`, in address order.
  std::vector<Extent> extents_in(const Range& range) const;

  /// The unmapped ranges that no block has reserved, in address order.
  std::vector<Range> gaps() const;
  /// The maximal mapped ranges without a hole, in address order.
  std::vector<Range> segments() const;
  /// The gap that begins at `at`. Empty if none does.
  Range gap_at(Address at) const;
  Range largest_gap() const;

  /// Records that `extents` are mapped one after the other from `at`, in a gap or in reserved addresses.
  void map(Address at, std::span<const Extent> extents);
  /// Records that the extents of `range` are unmapped; their addresses become a gap. Returns the extents.
  std::vector<Extent> unmap(const Range& range);
  /// The same, but their addresses are reserved until release().
  std::vector<Extent> take_out(const Range& range);
  /// Takes [at, at + bytes) out of its gap, for a block to grow into. release() returns it to the gaps.
  void reserve(Address at, std::uint64_t bytes);
  void release(Address at, std::uint64_t bytes);

 private:
  Range gap_before(Address at) const;
  void open_gap(Address from, Address to);
  void close_gap(Address from, Address to);

  std::map<Address, Extent> extents_;
  std::map<Address, Address> gaps_;  // begin to end
  Bytes mapped_;
};

}  // namespace gpumem::allocator
