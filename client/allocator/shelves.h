#pragma once
#include <array>
#include <deque>
#include <vector>

#include "client/allocator/piece.h"

namespace gpumem::allocator {

/// A free block of a class.
struct Block {
  Address address = 0;
  Slot* slot = nullptr;
};

/// The free slots of all runs, by stream and class, without those in threads' caches. Books only.
/// A run's free slots are of one stream, the run's; a slot that another stream frees waits apart until that
/// stream uses it again or its work is done.
class Shelves {
 public:
  /// Cuts `piece`, of kRunBytes of its class, into slots for `stream`.
  void add_run(Piece& piece, ClassIndex size_class, StreamIndex stream);

  /// `run`, which is wholly free, is none any more.
  void end_run(Piece& run);

  /// Up to `most` free slots for `stream`, appended to `into`. Answers how many.
  std::size_t take(ClassIndex size_class, StreamIndex stream, std::size_t most, std::vector<Block>& into);

  /// `block` of `run` is free after the work of `stream`. Answers whether all of the run is: it has left the
  /// shelves then.
  [[nodiscard]] bool put(Piece& run, const Block& block, StreamIndex stream, std::uint64_t epoch);

  /// The work of `stream` up to its mark `epoch` is done: what waited apart for it goes back to its run.
  /// Answers the runs that are wholly free by that; they have left the shelves.
  std::vector<Piece*> settle(StreamIndex stream, std::uint64_t epoch);

  /// The streams for whose work something waits apart.
  std::vector<StreamIndex> waited_for() const;

  /// Runs of `stream` are nobody's from now on: its work is done.
  void disown(Piece& run);

 private:
  struct Loose {
    Block block;
    Piece* run;
    std::uint64_t epoch;
  };
  struct Shelf {
    Piece* first = nullptr;  // runs with free slots
    std::vector<Loose> loose;
  };
  using Cabinet = std::array<Shelf, kSlotClasses>;
  Shelf& shelf(StreamIndex stream, ClassIndex size_class);
  void place(Piece& run);
  void withdraw(Piece& run);
  /// Adds a slot to the run's own; answers whether all of the run is free, and has left the shelves.
  bool return_slot(Piece& run, Slot& slot);
  std::size_t take_from(Shelf& shelf, std::size_t most, std::vector<Block>& into);
  static Address address_of(const Piece& run, std::uint16_t slot);

  std::deque<Cabinet> cabinets_;  // by stream
  // Kept as long as the allocator: who frees a block twice may still look.
  std::vector<std::unique_ptr<Slot[]>> slots_;
  std::array<std::vector<Slot*>, kSlotClasses> spare_slots_;
};

}  // namespace gpumem::allocator
