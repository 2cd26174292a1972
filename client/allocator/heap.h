#pragma once
#include <deque>
#include <unordered_map>
#include <vector>

#include "client/allocator/free_pieces.h"

namespace gpumem::allocator {

/// Mapped memory cut into pieces, free ones kept by the stream whose work may still use them. Small pieces
/// have units of their own, so that few of them do not keep much memory from being moved or given back.
/// Books only: no driver, no streams, no locks.
/// Invariant  no two adjacent free pieces are of the same stream, unless a unit for small ones begins or ends
///            between them; what kNoStream has is used by no work.
class Heap {
 public:
  /// `unit`  of extents' sizes and addresses. No run lies across two: a few slots keep one extent, not two.
  explicit Heap(std::uint64_t unit) : unit_(unit), free_(unit) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// [at, at + bytes) has been mapped: free, and one with what lies beside it and is free for `stream` or
  /// without one.
  void add(Address at, std::uint64_t bytes, StreamIndex stream, std::uint64_t epoch);
  /// Takes [from, to), which lies in the free piece `piece`, out: it is not mapped any more.
  void cut(Piece& piece, Address from, Address to);

  /// A free piece of at least `bytes` for work on `stream`, cut to that size: the best fit among those of the
  /// stream and those without. Null: there is none.
  Piece* take(std::uint64_t bytes, Cut cut, StreamIndex stream);
  /// The best fit among the pieces of `stream` alone. Null: there is none.
  Piece* fit(std::uint64_t bytes, Cut cut, StreamIndex stream) { return free_.fit(bytes, cut, stream); }
  /// Takes `bytes` of `piece`, which fits.
  Piece* take_of(Piece& piece, std::uint64_t bytes, Cut cut);
  /// All of `piece`, which is free.
  Piece* take_whole(Piece& piece) { return use(piece, piece.bytes); }
  /// Takes `bytes` more, of the free piece behind `piece`, for it. False: there is not so much.
  bool widen(Piece& piece, std::uint64_t bytes);
  /// Gives up what `piece` has from `keep` bytes on, free for `stream`.
  void narrow(Piece& piece, std::uint64_t keep, StreamIndex stream, std::uint64_t epoch);

  /// `piece` is free; work given to `stream` until after its mark `epoch` may use it.
  void free(Piece& piece, StreamIndex stream, std::uint64_t epoch);

  /// What `from` has is `to`'s from now on, free for it in `epoch`: the caller has ordered its work behind
  /// that of `from`.
  void adopt(StreamIndex from, StreamIndex to, std::uint64_t epoch);
  /// The work of `stream` up to its mark `epoch` is done: what became free before it is without a stream.
  void settle(StreamIndex stream, std::uint64_t epoch);

  /// The unit of `piece`, if it was for small pieces, is for all from now on; `piece` may become longer, or
  /// part of the piece before it. Or all such units are that have free pieces.
  void open_unit(Piece& piece);
  void open_units();

  /// The piece that ends, or begins, at `at`, where mapped memory does. Null: none does.
  Piece* ending_at(Address at) const { return edge(ends_, at); }
  Piece* beginning_at(Address at) const { return edge(begins_, at); }

  /// The free pieces of `stream` that are as long as a unit: all that have a whole one are among them.
  FreePieces::Range long_pieces_of(StreamIndex stream) const { return free_.long_ones(stream); }
  /// The streams that have free pieces, without kNoStream.
  std::vector<StreamIndex> streams() const { return free_.streams(); }

  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t used_bytes() const { return used_bytes_; }
  /// The least that was free since the last call.
  std::uint64_t take_low_water();

  /// Calls `visit` with each run of `stream`.
  template <class Visit>
  void each_run(StreamIndex stream, Visit visit) {
    for (Piece& piece : pieces_) {
      if (piece.use == Piece::Use::kRun && piece.stream == stream) visit(piece);
    }
  }
  /// Calls `visit` with each piece in use, in no order.
  template <class Visit>
  void each_in_use(Visit visit) const {
    for (const Piece& piece : pieces_) {
      if (!piece.is_free()) visit(piece);
    }
  }

 private:
  Piece& make(Address base, std::uint64_t bytes);
  void discard(Piece& piece);
  Piece* use(Piece& piece, std::uint64_t bytes);
  /// Cuts `piece` in two at `bytes`, both free or both in use as it was; answers the second.
  Piece& split(Piece& piece, std::uint64_t bytes);
  /// Cuts the free piece `piece` so that [from, from + bytes) is one; answers that.
  Piece& carve(Piece& piece, Address from, std::uint64_t bytes);
  /// Makes a unit of `piece`, if it has a whole one, one for small pieces; answers what of `piece` to use.
  Piece& for_small(Piece& piece);
  bool in_one_unit(const Piece& a, const Piece& b) const { return a.base / unit_ == b.base / unit_; }
  /// Makes `piece` and the one behind it one.
  void join(Piece& piece, Piece& behind);
  static void link(Piece* left, Piece* right);
  using Edges = std::unordered_map<Address, Piece*>;
  static Piece* edge(const Edges& edges, Address at);

  const std::uint64_t unit_;
  std::deque<Piece> pieces_;
  std::vector<Piece*> spare_;  // pieces that are nothing now
  FreePieces free_;
  Edges ends_;    // pieces without one after them, by end
  Edges begins_;  // pieces without one before them, by base
  std::uint64_t free_bytes_ = 0;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t low_water_ = 0;
};

}  // namespace gpumem::allocator
