#include "client/allocator/heap.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpumem::allocator {

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
  Piece* out = &carve(piece, from, to - from);
  free_.remove(*out);
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
  if (stream != kNoStream) found = free_.better(fit(bytes, cut, stream), found, bytes, cut);
  return found == nullptr ? nullptr : take_of(*found, bytes, cut);
}

Piece* Heap::take_of(Piece& piece, std::uint64_t bytes, Cut cut) {
  Piece& from = free_.is_small(bytes, cut) ? for_small(piece) : piece;
  const Address at = *free_.place(from, bytes, cut);
  return use(at == from.base ? from : carve(from, at, from.end() - at), bytes);
}

Piece& Heap::for_small(Piece& piece) {
  const auto at = free_.whole_unit(piece);
  if (!at) return piece;
  Piece& unit = carve(piece, *at, unit_);
  free_.remove(unit);
  unit.small = true;
  free_.insert(unit);
  return unit;
}

Piece& Heap::carve(Piece& piece, Address from, std::uint64_t bytes) {
  if (from == piece.base && bytes == piece.bytes) return piece;
  Piece* out = &piece;
  free_.remove(piece);
  if (from > piece.base) {
    out = &split(piece, from - piece.base);
    free_.insert(piece);
  }
  if (bytes < out->bytes) free_.insert(split(*out, bytes));
  free_.insert(*out);
  return *out;
}

Piece* Heap::use(Piece& piece, std::uint64_t bytes) {
  free_.remove(piece);
  if (piece.bytes > bytes) free_.insert(split(piece, bytes));
  free_bytes_ -= bytes;
  used_bytes_ += bytes;
  low_water_ = std::min(low_water_, free_bytes_);
  piece.use = Piece::Use::kBlock;
  return &piece;
}

bool Heap::widen(Piece& piece, std::uint64_t bytes) {
  Piece* behind = piece.after;
  if (behind == nullptr || !behind->is_free() || behind->bytes < bytes) return false;
  if (piece.small != behind->small) open_unit(piece.small ? piece : *behind);
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
  const auto joins = [&piece, stream, this](const Piece* other) {
    return other != nullptr && other->is_free() && (other->stream == stream || other->stream == kNoStream) &&
           other->small == piece.small && (!piece.small || in_one_unit(*other, piece));
  };
  Piece* whole = &piece;
  while (joins(whole->before)) {
    Piece& taken_in = *whole;
    whole = whole->before;
    free_.remove(*whole);
    epoch = std::max(epoch, whole->epoch);
    join(*whole, taken_in);
  }
  while (joins(whole->after)) {
    Piece& behind = *whole->after;
    free_.remove(behind);
    epoch = std::max(epoch, behind.epoch);
    join(*whole, behind);
  }
  whole->stream = stream;
  whole->epoch = stream == kNoStream ? 0 : epoch;
  if (whole->small && whole->bytes == unit_) {  // nothing is left that the unit was set apart for
    whole->small = false;
    free(*whole, whole->stream, whole->epoch);
    return;
  }
  free_.insert(*whole);
}

void Heap::settle(StreamIndex stream, std::uint64_t epoch) {
  // None of them is joined by another: what is without a stream takes in nothing that has one.
  for (Piece* piece : free_.all_of(stream)) {
    if (piece->epoch >= epoch) continue;
    free_.remove(*piece);
    free(*piece, kNoStream, 0);
  }
}

void Heap::adopt(StreamIndex from, StreamIndex to, std::uint64_t epoch) {
  for (Piece* piece : free_.all_of(from)) {
    free_.remove(*piece);
    free(*piece, to, epoch);
  }
}

// ---- Units for small pieces ----

void Heap::open_unit(Piece& piece) {
  if (!piece.small) return;
  Piece* first = &piece;
  while (first->before != nullptr && in_one_unit(*first->before, piece)) first = first->before;
  std::vector<Piece*> opened;
  for (Piece* at = first; at != nullptr && in_one_unit(*at, piece); at = at->after) {
    if (at->is_free()) {
      free_.remove(*at);
      opened.push_back(at);
    }
    at->small = false;
    if (at->is_free()) free_.insert(*at);
  }
  for (Piece* at : opened) {       // what lies beside the unit may now become one with them
    if (at->bytes == 0) continue;  // it has, with one of these
    free_.remove(*at);
    free(*at, at->stream, at->epoch);
  }
}

void Heap::open_units() {
  for (Piece* piece : free_.all_small()) open_unit(*piece);
}

// ---- Books ----

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
  piece->small = false;
  return *piece;
}

void Heap::discard(Piece& piece) {
  piece.use = Piece::Use::kFree;
  piece.bytes = 0;
  spare_.push_back(&piece);
}

Piece& Heap::split(Piece& piece, std::uint64_t bytes) {
  Piece& rest = make(piece.base + bytes, piece.bytes - bytes);
  rest.stream = piece.stream;
  rest.epoch = piece.epoch;
  rest.use = piece.use;
  rest.small = piece.small;
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

}  // namespace gpumem::allocator
