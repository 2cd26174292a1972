#include "client/allocator/heap.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpumem::allocator {
namespace {

struct FitsBytes {
  bool operator()(const Piece& piece, std::uint64_t bytes) const { return piece.bytes < bytes; }
  bool operator()(std::uint64_t bytes, const Piece& piece) const { return bytes < piece.bytes; }
};

Piece* smaller(Piece* a, Piece* b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  return *b < *a ? b : a;
}

}  // namespace

// ---- What is mapped ----

void Heap::add(Address at, std::uint64_t bytes, StreamIndex stream, std::uint64_t epoch) {
  Piece& piece = make(at, bytes);
  link(ending_at(at), &piece);
  link(&piece, beginning_at(at + bytes));
  if (piece.before != nullptr) {
    ends_.erase(at);
  } else {
    begins_[at] = &piece;
  }
  if (piece.after != nullptr) {
    begins_.erase(piece.end());
  } else {
    ends_[piece.end()] = &piece;
  }
  free_bytes_ += bytes;
  free(piece, stream, epoch);
}

void Heap::cut(Piece& piece, Address from, Address to) {
  GPUMEM_CHECK(piece.is_free() && piece.base <= from && to <= piece.end(), "only free memory is unmapped");
  remove(piece);
  Piece* out = &piece;
  if (from > piece.base) {
    out = &split(piece, from - piece.base);
    insert(piece);
  }
  if (to < out->end()) insert(split(*out, to - out->base));
  free_bytes_ -= out->bytes;
  low_water_ = std::min(low_water_, free_bytes_);
  if (out->before != nullptr) {
    out->before->after = nullptr;
    ends_[from] = out->before;
  } else {
    begins_.erase(from);
  }
  if (out->after != nullptr) {
    out->after->before = nullptr;
    begins_[to] = out->after;
  } else {
    ends_.erase(to);
  }
  discard(*out);
}

// ---- Taking ----

Piece* Heap::take(std::uint64_t bytes, Cut cut, StreamIndex stream) {
  Piece* found = fit(bytes, cut, kNoStream);
  if (stream != kNoStream) found = smaller(fit(bytes, cut, stream), found);
  return found == nullptr ? nullptr : take_of(*found, bytes, cut);
}

Piece* Heap::fit(std::uint64_t bytes, Cut cut, StreamIndex stream) {
  FreeSet& set = set_of(stream);
  for (auto at = set.lower_bound(bytes, FitsBytes()); at != set.end(); ++at) {
    if (cut == Cut::kPiece || run_base(*at, bytes) + bytes <= at->end()) return &*at;
  }
  return nullptr;
}

Piece* Heap::take_of(Piece& piece, std::uint64_t bytes, Cut cut) {
  const std::uint64_t ahead = cut == Cut::kRun ? run_base(piece, bytes) - piece.base : 0;
  if (ahead == 0) return use(piece, bytes);
  remove(piece);
  Piece& run = split(piece, ahead);
  insert(piece);
  insert(run);
  return use(run, bytes);
}

Address Heap::run_base(const Piece& piece, std::uint64_t bytes) const {
  const Address base = rounded_up(piece.base, kGranule);
  const Address boundary = (base / unit_ + 1) * unit_;
  return base + bytes <= boundary ? base : boundary;
}

Piece* Heap::use(Piece& piece, std::uint64_t bytes) {
  remove(piece);
  if (piece.bytes > bytes) insert(split(piece, bytes));
  free_bytes_ -= bytes;
  used_bytes_ += bytes;
  low_water_ = std::min(low_water_, free_bytes_);
  piece.use = Piece::Use::kBlock;
  return &piece;
}

bool Heap::widen(Piece& piece, std::uint64_t bytes) {
  Piece* behind = piece.after;
  if (behind == nullptr || !behind->is_free() || behind->bytes < bytes) return false;
  join(piece, *use(*behind, bytes));
  return true;
}

void Heap::narrow(Piece& piece, std::uint64_t keep, StreamIndex stream, std::uint64_t epoch) {
  Piece& rest = split(piece, keep);
  used_bytes_ -= rest.bytes;
  free_bytes_ += rest.bytes;
  rest.use = Piece::Use::kFree;
  free(rest, stream, epoch);
}

// ---- Giving back ----

void Heap::free(Piece& piece, StreamIndex stream, std::uint64_t epoch) {
  if (!piece.is_free()) {
    used_bytes_ -= piece.bytes;
    free_bytes_ += piece.bytes;
    piece.use = Piece::Use::kFree;
  }
  piece.stream = stream;
  piece.epoch = epoch;
  // A neighbour without a stream is taken in: it waits for that stream, too, until the next mark.
  const auto joins = [stream](const Piece* other) {
    return other != nullptr && other->is_free() && (other->stream == stream || other->stream == kNoStream);
  };
  Piece* whole = &piece;
  while (joins(whole->before)) {
    Piece& taken_in = *whole;
    whole = whole->before;
    remove(*whole);
    epoch = std::max(epoch, whole->epoch);
    join(*whole, taken_in);
  }
  while (joins(whole->after)) {
    Piece& behind = *whole->after;
    remove(behind);
    epoch = std::max(epoch, behind.epoch);
    join(*whole, behind);
  }
  whole->stream = stream;
  whole->epoch = stream == kNoStream ? 0 : epoch;
  insert(*whole);
}

void Heap::settle(StreamIndex stream, std::uint64_t epoch) {
  std::vector<Piece*> done;
  for (Piece& piece : set_of(stream)) {
    if (piece.epoch < epoch) done.push_back(&piece);
  }
  std::ranges::sort(done, {}, [](const Piece* piece) { return piece->base; });
  for (Piece* piece : done) {  // no two of one stream are adjacent: none of them is joined by another
    remove(*piece);
    free(*piece, kNoStream, 0);
  }
}

void Heap::adopt(StreamIndex from, StreamIndex to, std::uint64_t epoch) {
  FreeSet& set = set_of(from);
  while (!set.empty()) {
    Piece& piece = *set.begin();
    remove(piece);
    free(piece, to, epoch);
  }
}

// ---- Books ----

const FreeSet& Heap::pieces_of(StreamIndex stream) const {
  static const FreeSet kNothing;
  return stream < sets_.size() ? sets_[stream] : kNothing;
}

std::vector<StreamIndex> Heap::streams() const {
  std::vector<StreamIndex> found;
  for (std::size_t i = 1; i < sets_.size(); ++i) {
    if (!sets_[i].empty()) found.push_back(static_cast<StreamIndex>(i));
  }
  return found;
}

std::uint64_t Heap::take_low_water() { return std::exchange(low_water_, free_bytes_); }

Piece& Heap::make(Address base, std::uint64_t bytes) {
  Piece* piece = nullptr;
  if (spare_.empty()) {
    piece = &pieces_.emplace_back();
  } else {
    piece = spare_.back();
    spare_.pop_back();
  }
  piece->base = base;
  piece->bytes = bytes;
  piece->before = nullptr;
  piece->after = nullptr;
  piece->use = Piece::Use::kFree;
  return *piece;
}

void Heap::discard(Piece& piece) {
  piece.use = Piece::Use::kFree;
  piece.bytes = 0;
  spare_.push_back(&piece);
}

void Heap::insert(Piece& piece) { set_of(piece.stream).insert(piece); }

void Heap::remove(Piece& piece) {
  FreeSet& set = set_of(piece.stream);
  set.erase(set.iterator_to(piece));
}

Piece& Heap::split(Piece& piece, std::uint64_t bytes) {
  Piece& rest = make(piece.base + bytes, piece.bytes - bytes);
  rest.stream = piece.stream;
  rest.epoch = piece.epoch;
  rest.use = piece.use;
  link(&rest, piece.after);
  link(&piece, &rest);
  piece.bytes = bytes;
  if (rest.after == nullptr) ends_[rest.end()] = &rest;
  return rest;
}

void Heap::join(Piece& piece, Piece& behind) {
  piece.bytes += behind.bytes;
  link(&piece, behind.after);
  if (behind.after == nullptr) ends_[piece.end()] = &piece;
  discard(behind);
}

void Heap::link(Piece* left, Piece* right) {
  if (left != nullptr) left->after = right;
  if (right != nullptr) right->before = left;
}

Piece* Heap::edge(const Edges& edges, Address at) {
  const auto found = edges.find(at);
  return found == edges.end() ? nullptr : found->second;
}

FreeSet& Heap::set_of(StreamIndex stream) {
  while (sets_.size() <= stream) sets_.emplace_back();
  return sets_[stream];
}

}  // namespace gpumem::allocator
