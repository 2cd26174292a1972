#pragma once
#include <array>
#include <deque>
#include <vector>

#include "client/allocator/span.h"

namespace gpumem::allocator {

/// The free slots of all slabs, by stream and size class, except those in thread caches. Bookkeeping only.
/// A slab's free slots belong to one stream, the slab's. A slot that another stream frees is deferred: it
/// stays outside the slab until that stream uses it again or its work is done.
class SlabBins {
 public:
  /// Makes `span`, kSlabBytes of its class long, a slab for `stream`. Others may use it when the stream has
  /// come to the end of `epoch`.
  void add_slab(Span& span, ClassIndex size_class, StreamIndex stream, std::uint64_t epoch);

  /// `slab`, which is wholly free, is no slab any more.
  void end_slab(Span& slab);

  /// Appends up to `most` free slots for `stream` to `into`. Returns how many.
  std::size_t take(ClassIndex size_class, StreamIndex stream, std::size_t most, std::vector<Block>& into);

  /// Frees `block` of `slab`, which the work of `stream` may still use, or no work if that is kNoStream.
  /// Returns whether the whole slab is free; it has then been removed from its bin.
  [[nodiscard]] bool put(Span& slab, const Block& block, StreamIndex stream, std::uint64_t epoch);

  /// The work of `stream` up to its mark `epoch` is done: its deferred slots return to their slabs. Returns
  /// the slabs that are wholly free now; they have been removed from their bins.
  std::vector<Span*> settle(StreamIndex stream, std::uint64_t epoch);

  /// `slab` belongs to no stream from now on: the work of its stream is done.
  void clear_stream(Span& slab);

 private:
  struct DeferredFree {
    Block block;
    Span* slab;
    std::uint64_t epoch;
  };
  struct Bin {
    SlabList slabs;  // with free slots
    std::vector<DeferredFree> deferred;
  };
  using StreamBins = std::array<Bin, kSlotClasses>;
  Bin& bin(StreamIndex stream, ClassIndex size_class);
  void insert(Span& slab);
  void remove(Span& slab);
  /// Adds `slot` to the slab's free slots. Returns whether the whole slab is free; it has then been removed.
  bool return_slot(Span& slab, Slot& slot);
  std::size_t take_from(Bin& from, std::size_t most, std::vector<Block>& into);

  std::deque<StreamBins> bins_;  // by stream
  // Kept until the allocator ends, because a double free may still read them.
  std::vector<std::unique_ptr<Slot[]>> slots_;
  std::array<std::vector<Slot*>, kSlotClasses> spare_slots_;
};

}  // namespace gpumem::allocator
