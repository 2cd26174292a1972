#pragma once
#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "client/allocator/address_space.h"
#include "client/allocator/backing.h"
#include "client/allocator/heap.h"

namespace gpumem::allocator {

/// The extents of an allocator. Makes large free spans out of them: a wholly free extent is remapped at
/// another address instead of being left as a hole. If work of a stream may still use it, it is mapped there
/// for that stream alone, which comes after that work, and its former mapping, an alias, stays until the work
/// is done.
/// Threads  under the allocator's lock.
class ExtentHeap {
 public:
  ExtentHeap(Backing& backing, Heap& heap);

  /// Committed: mapped and spare.
  Bytes committed() const { return space_.mapped() + spare_bytes_; }
  /// The part that is not mapped.
  Bytes spare() const { return spare_bytes_; }
  /// Bytes in extents that are spare or lie wholly within free spans, even if work may still use them.
  Bytes returnable() const;
  std::uint64_t moved() const { return moved_; }

  /// The work of `stream` up to its mark `epoch` is done: unmaps the aliases that it used.
  void settle(StreamIndex stream, std::uint64_t epoch);
  /// The streams that aliases wait for.
  std::vector<StreamIndex> streams() const;

  /// Adds extents that the backing has lent. They are mapped when needed.
  void add(std::vector<Extent> extents);

  /// How much more the backing must lend for make_span(bytes, stream) to succeed.
  std::uint64_t missing_for(std::uint64_t bytes, StreamIndex stream) const;
  /// Maps extents so that a free span of `bytes` exists for `stream`.
  /// Errors  kResourceExhausted: missing_for() is not zero, or no addresses; the driver's. No memory is lost.
  Result<void> make_span(std::uint64_t bytes, StreamIndex stream);

  /// Whether a free span of `bytes` can be made after `block`, possibly with more memory.
  bool can_make_span_after(const Span& block, std::uint64_t bytes, StreamIndex stream) const;
  /// As missing_for and make_span, for a free span directly after `block`, in its gap or its room.
  std::uint64_t missing_after(const Span& block, std::uint64_t bytes, StreamIndex stream) const;
  Result<void> make_span_after(const Span& block, std::uint64_t bytes, StreamIndex stream);

  /// Reserves `bytes` of addresses with an unmapped gap on either side. Returns the first address, or zero
  /// if there are none.
  Address reserve_room(std::uint64_t bytes);
  /// Releases the unmapped part of the room [from, to), which begins at `end`.
  void release_room(Address from, Address end, Address to);
  /// Maps extents of `bytes` at `at`, in reserved room.
  Result<void> make_span_at(Address at, std::uint64_t bytes, std::uint64_t room);
  std::uint64_t missing_at(std::uint64_t bytes, std::uint64_t room) const;

  /// Unmaps and removes extents that no work uses, at least `bytes` if there are as many. For giving back.
  std::vector<Extent> take_free(std::uint64_t bytes);
  /// The same, at most `bytes`.
  std::vector<Extent> take_free_within(std::uint64_t bytes);
  /// Unmaps and removes everything, used or not, when the allocator closes. What the driver refuses to unmap
  /// stays until the backing ends.
  std::vector<Extent> take_all();

 private:
  /// A place in a gap for newly mapped memory, and the adjacent free spans that it merges with.
  struct Site {
    AddressSpace::Range gap;
    std::uint64_t maps = 0;  ///< bytes to map; the whole gap joins both sides
    Span* before = nullptr;  ///< used, or null
    Span* after = nullptr;
    bool at_end = false;  ///< mapped at the gap's end, before `after`
  };
  /// An extent that can be used: spare, or wholly free and mapped.
  struct Source {
    Extent extent;
    Span* span = nullptr;  ///< null: not mapped
    Address at = 0;        ///< or the place in spare_
    bool is_used() const { return span != nullptr && span->stream != kNoStream; }
  };
  struct Alias {
    AddressSpace::Range range;
    std::vector<Extent> extents;
    StreamIndex stream = kNoStream;
    std::uint64_t epoch = 0;  ///< as Span's
  };
  struct Choice {
    std::vector<Source> sources;
    std::uint64_t bytes = 0;
    std::uint64_t missing = 0;
  };

  struct Plan {
    Site site;
    Choice choice;
  };
  /// Where a free span of `bytes` would be made, and from which extents.
  Plan plan(std::uint64_t bytes, StreamIndex stream) const;
  Site best_site(std::uint64_t bytes, StreamIndex stream) const;
  Site site_of(const AddressSpace::Range& gap, std::uint64_t bytes, StreamIndex stream) const;
  std::vector<Source> sources(StreamIndex stream, const Span* excluded, const Span* also_excluded) const;
  static Choice choose(std::vector<Source> sources, std::uint64_t bytes, std::uint64_t most);
  std::vector<Extent> gather_or_spare(std::vector<Source> chosen);
  /// Extents of at least `bytes`, if nothing is missing, and of at most `most`. Some that the work of
  /// `stream` uses are among them if the others do not suffice.
  Choice choice_for(std::uint64_t bytes, std::uint64_t most, StreamIndex stream = kNoStream,
                    const Span* excluded = nullptr, const Span* also_excluded = nullptr) const;
  struct Following {
    std::uint64_t free_bytes = 0;  ///< free already
    Address at = 0;                ///< where more would be mapped
    std::uint64_t most = 0;
  };
  /// The free space after `block`. Nothing if something else is there.
  std::optional<Following> space_after(const Span& block, StreamIndex stream) const;
  /// Unmaps the mapped extents of `chosen`, which no work uses. Returns all of `chosen`.
  Result<std::vector<Extent>> gather(std::vector<Source> chosen);
  Result<void> unmap(Span& span, const AddressSpace::Range& range, std::vector<Extent>& into);
  /// Makes the mappings of `used` aliases.
  void leave(std::vector<Source> used);
  bool unmap_alias(const Alias& alias);
  /// Maps `choice` at `at`. `owner`  an adjacent span, or null.
  Result<void> build(Choice choice, Address at, const Span* owner);

  Backing& backing_;
  Heap& heap_;
  const std::uint64_t unit_;
  const std::uint64_t most_aliases_;  ///< bytes; the other addresses are for blocks
  AddressSpace space_;
  std::vector<Extent> spare_;
  Bytes spare_bytes_;
  std::vector<Alias> aliases_;
  std::uint64_t alias_bytes_ = 0;
  std::unordered_multiset<std::uint64_t> aliased_;  ///< ids of the extents that have aliases
  std::uint64_t moved_ = 0;
};

}  // namespace gpumem::allocator
