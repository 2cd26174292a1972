#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "client/allocator/backing.h"
#include "client/allocator/ground.h"
#include "client/allocator/heap.h"

namespace gpumem::allocator {

/// The extents an allocator has, and the making of large free pieces out of them: wholly free extents are
/// mapped under new addresses rather than left as holes.
/// Threads  under the allocator's lock.
class Stock {
 public:
  Stock(Backing& backing, Heap& heap);

  /// Committed: mapped or not.
  Bytes committed() const { return ground_.mapped() + spare_bytes_; }
  /// Of it, not mapped.
  Bytes spare() const { return spare_bytes_; }
  /// In extents that are not mapped or lie wholly within free pieces, whatever work may still use them.
  Bytes returnable() const;
  std::uint64_t moved() const { return moved_; }

  /// Extents that the backing has lent, to be mapped when needed.
  void add(std::vector<Extent> extents);

  /// How much the backing has to lend so that make(bytes, stream) succeeds.
  std::uint64_t missing_for(std::uint64_t bytes, StreamIndex stream) const;
  /// Maps extents so that there is a free piece of `bytes` for `stream`.
  /// Errors  kResourceExhausted: missing_for() is not zero, or no addresses; the driver's. No memory is lost.
  Result<void> make(std::uint64_t bytes, StreamIndex stream);

  /// Whether a free piece of `bytes` can be had behind `block`, with more memory if need be.
  bool can_make_behind(const Piece& block, std::uint64_t bytes, StreamIndex stream) const;
  /// As missing_for and make, for a free piece right behind `block`, in the gap or the room that is there.
  std::uint64_t missing_behind(const Piece& block, std::uint64_t bytes, StreamIndex stream) const;
  Result<void> make_behind(const Piece& block, std::uint64_t bytes, StreamIndex stream);

  /// Keeps `bytes` of addresses, at which nothing else will border, and answers where; zero: there are none.
  Address keep_room(std::uint64_t bytes);
  /// Gives up what of the room [from, to) is not mapped: all from `end` on.
  void give_up_room(Address from, Address end, Address to);
  /// Maps extents of `bytes` at `at`, in kept room.
  Result<void> make_at(Address at, std::uint64_t bytes, std::uint64_t room);
  std::uint64_t missing_at(std::uint64_t bytes, std::uint64_t room) const;

  /// Takes extents out that no work uses, of at least `bytes` in all as far as there are; for giving back.
  std::vector<Extent> take_out(std::uint64_t bytes);
  /// The same, of at most `bytes`.
  std::vector<Extent> take_out_within(std::uint64_t bytes);
  /// Unmaps everything, used or not: the end. What the driver refuses to unmap is left to the backing's end.
  std::vector<Extent> take_everything();

 private:
  /// A place for new memory in a gap, and what of free memory beside it becomes one with it.
  struct Site {
    Ground::Span gap;
    std::uint64_t maps = 0;   ///< so much has to be mapped; all of the gap: it joins both sides
    Piece* before = nullptr;  ///< used, or null
    Piece* behind = nullptr;
    bool at_end = false;  ///< mapped at the gap's end, before `behind`
  };
  /// An extent that can be had.
  struct Source {
    Bytes size;
    Piece* piece = nullptr;  ///< null: not mapped
    Address at = 0;          ///< or the place in spare_
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
  /// Where and out of what a free piece of `bytes` would be made.
  Plan plan(std::uint64_t bytes, StreamIndex stream) const;
  Site best_site(std::uint64_t bytes, StreamIndex stream) const;
  Site site_of(const Ground::Span& gap, std::uint64_t bytes, StreamIndex stream) const;
  std::vector<Source> sources(const Piece* without, const Piece* nor) const;
  static Choice choose(std::vector<Source> sources, std::uint64_t bytes, std::uint64_t most);
  std::vector<Extent> collect_or_spare(std::vector<Source> chosen);
  /// Of at least `bytes`, if nothing is missing, and of at most `most`.
  Choice choice_for(std::uint64_t bytes, std::uint64_t most, const Piece* without = nullptr,
                    const Piece* nor = nullptr) const;
  struct Behind {
    std::uint64_t lead = 0;  ///< free already
    Address at = 0;          ///< where more would be mapped
    std::uint64_t most = 0;
  };
  /// Nothing: something else is there.
  std::optional<Behind> behind(const Piece& block, StreamIndex stream) const;
  /// Unmaps what is mapped of `chosen`; answers all of it.
  Result<std::vector<Extent>> collect(std::vector<Source> chosen);
  Result<void> lift(Piece& piece, const Ground::Span& span, std::vector<Extent>& into);
  Result<void> lay(Address at, std::vector<Extent> extents, const Piece* owner);
  Result<void> build(Choice choice, Address at, const Piece* owner);

  Backing& backing_;
  Heap& heap_;
  const std::uint64_t unit_;
  Ground ground_;
  std::vector<Extent> spare_;
  Bytes spare_bytes_;
  std::uint64_t moved_ = 0;
};

}  // namespace gpumem::allocator
