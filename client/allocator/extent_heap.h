#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <unordered_set>
#include <vector>

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
  Bytes committed() const { return mapped_bytes_ + spare_bytes_; }
  /// The part that is not mapped.
  Bytes spare() const { return spare_bytes_; }
  /// Bytes in extents that are spare or lie wholly within free spans, even if work may still use them.
  Bytes returnable() const;
  std::uint64_t moved() const { return moved_; }

  /// The work of `stream` up to its mark `epoch` is done: unmaps the aliases that it used.
  void settle(StreamIndex stream, std::uint64_t epoch);

  /// Adds extents that the backing has lent. They are mapped when needed.
  void add(std::vector<Extent> extents);

  /// An extent that can be used: spare, or wholly free and mapped.
  struct Source {
    Extent extent;
    Span* span = nullptr;  ///< null: not mapped
    Address at = 0;        ///< if it is mapped
    bool is_used() const { return span != nullptr && span->stream != kNoStream; }
  };
  /// How a free span can be made. Valid until anything changes.
  struct Plan {
    Address at = 0;                 ///< where to map; zero: there are no addresses
    Span* room = nullptr;           ///< the reserved span that `at` lies in; null: a gap
    const Span* owner = nullptr;    ///< the adjacent free span, or null
    std::vector<Source> sources{};  ///< none: the span is there already
    std::uint64_t bytes = 0;        ///< of these
    std::uint64_t missing = 0;      ///< that the backing must lend before
  };
  /// For a free span of `bytes` for `stream`.
  Plan plan_span(std::uint64_t bytes, StreamIndex stream) const;
  /// Plans a span directly after `block`, in its gap or its room. `block`  may be what Heap::reserve
  /// returned.
  Plan plan_after(const Span& block, std::uint64_t bytes, StreamIndex stream) const;
  /// Carries `plan` out, for which nothing is missing.
  /// Errors  kResourceExhausted: no addresses; the driver's. No memory is lost.
  Result<void> make(Plan plan);

  /// Unmaps and removes extents that no work uses, at least `bytes` if there are as many, but at most `most`.
  /// For giving back.
  std::vector<Extent> take_free(std::uint64_t bytes,
                                std::uint64_t most = std::numeric_limits<std::uint64_t>::max());
  /// Unmaps and removes everything, used or not, when the allocator closes. Extents that the driver refuses
  /// to unmap stay until the backing ends.
  std::vector<Extent> take_all();

 private:
  /// A place in a gap for newly mapped memory, and the adjacent free spans that it merges with.
  struct Site {
    Span* gap = nullptr;
    std::uint64_t maps = 0;  ///< bytes to map; the whole gap joins both sides
    Span* before = nullptr;  ///< used, or null
    Span* after = nullptr;
  };
  /// Adjacent extents of one free span, or an alias, which is a reserved span with the stream and the epoch
  /// of the work.
  struct Run {
    Span* span = nullptr;
    Address from = 0;
    std::uint64_t bytes = 0;
    std::vector<Extent> extents;
  };
  Site best_site(std::uint64_t bytes, StreamIndex stream) const;
  Site site_of(Span& gap, std::uint64_t bytes, StreamIndex stream) const;
  std::vector<Source> sources(StreamIndex stream, const Span* excluded, const Span* also_excluded) const;
  /// Out of `sources`, which it sorts.
  static Plan choose(std::vector<Source>& sources, std::uint64_t bytes, std::uint64_t most);
  /// Extents of at least `bytes`, if nothing is missing, and of at most `most`. Some that the work of
  /// `stream` uses are among them if the others do not suffice.
  Plan choose_for(std::uint64_t bytes, std::uint64_t most, StreamIndex stream = kNoStream,
                  const Span* excluded = nullptr, const Span* also_excluded = nullptr) const;
  /// The mapped ones of `sources`, from the highest address down, so that cutting a run out of its span does
  /// not change where the rest begins.
  static std::vector<Run> runs_of(std::vector<Source> sources);
  /// Unmaps the mapped extents of `chosen`, which no work uses. Returns all of `chosen`.
  Result<std::vector<Extent>> gather(const std::vector<Source>& chosen);
  /// Makes the mappings of `used` aliases.
  void leave(std::vector<Run> used);
  bool unmap_alias(const Run& alias);
  /// [from, from + bytes) is not mapped for blocks any more.
  void take_out(Address from, std::uint64_t bytes);
  /// Calls `visit` with the address and the extent of each that lies wholly within `span`.
  template <class Visit>
  void each_within(const Span& span, Visit visit) const {
    for (auto at = mapped_.lower_bound(span.base);
         at != mapped_.end() && at->first + at->second.size.count <= span.end(); ++at) {
      visit(at->first, at->second);
    }
  }

  Backing& backing_;
  Heap& heap_;
  const std::uint64_t unit_;
  const std::uint64_t most_aliases_;  ///< bytes; the other addresses are for blocks
  std::map<Address, Extent> mapped_;  ///< without aliases
  Bytes mapped_bytes_;
  std::vector<Extent> spare_;
  Bytes spare_bytes_;
  std::vector<Run> aliases_;
  std::uint64_t alias_bytes_ = 0;
  std::unordered_multiset<std::uint64_t> aliased_;  ///< ids of the extents that have aliases
  std::uint64_t moved_ = 0;
};

}  // namespace gpumem::allocator
