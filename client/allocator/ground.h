#pragma once
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "client/allocator/backing.h"

namespace gpumem::allocator {

/// Which extent is mapped where, and which addresses are free: books only, no driver.
/// Invariant  every address of the arena is in one mapped extent, in one gap, or in one room kept for a
/// block.
class Ground {
 public:
  Ground(Address base, Bytes addresses);

  struct Span {
    Address from = 0;
    Address to = 0;
    std::uint64_t bytes() const { return to - from; }
  };

  Bytes mapped() const { return mapped_; }
  std::size_t count() const { return extents_.size(); }

  /// The extents that lie wholly within [from, to), which is mapped throughout; empty: none does.
  Span whole_within(Address from, Address to) const;
  /// The extents of `span`, by address.
  std::vector<Extent> extents_in(const Span& span) const;

  /// By address.
  std::vector<Span> gaps() const;
  /// What is mapped without a hole, by address.
  std::vector<Span> segments() const;
  /// The gap that begins at `at`; empty: none does.
  Span gap_at(Address at) const;
  /// The first gap of at least `bytes`; empty: there is none.
  Span gap_of(std::uint64_t bytes) const;
  Span largest_gap() const;

  /// `extents` are mapped from `at` on, one after the other, in a gap (or in kept room).
  void lay(Address at, std::span<const Extent> extents);
  /// The extents of `span` are not mapped any more; their addresses become a gap. Answers them.
  std::vector<Extent> lift(const Span& span);
  /// Takes [at, at + bytes) out of its gap, for a block to grow into; and back.
  void keep(Address at, std::uint64_t bytes);
  void unkeep(Address at, std::uint64_t bytes);

 private:
  Span gap_before(Address at) const;
  void open_gap(Address from, Address to);
  void close_gap(Address from, Address to);

  std::map<Address, Extent> extents_;
  std::map<Address, Address> gaps_;  // begin to end
  Bytes mapped_;
};

}  // namespace gpumem::allocator
