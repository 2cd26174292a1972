#include <algorithm>
#include <utility>

#include "client/allocator/engine.h"

// Blocks that become longer or shorter where they are.

namespace gpumem::allocator {

Result<void, GrowError> Engine::extend(Address address, Bytes bytes, Bytes to, StreamHandle stream) {
  if (auto can = usable(); !can) return GrowError(can.error());
  if (to.is_zero())
    return GrowError({Code::kInvalidArgument, "a block has at least one byte; free it instead"});
  if (to > limit_) {
    return GrowError(
        {Code::kResourceExhausted,
         "a block of " + to_string(to) + " is larger than the allocator's limit of " + to_string(limit_)});
  }
  ThreadCache* cache = own_cache();
  Found found;
  StreamIndex index = kNoStream;
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return GrowError(is_closed());
    auto block = find(address, bytes);
    if (!block) return GrowError(block.error());
    auto known = stream_of(stream, cache);
    if (!known) return GrowError(known.error());
    found = *block;
    index = *known;
    if (found.piece->use == Piece::Use::kRun) {
      if (to.count > found.piece->slot_bytes) {
        return GrowError(
            {Code::kAborted, "a block of up to 16 KiB cannot become larger than its size class of " +
                                 to_string(Bytes{found.piece->slot_bytes}) +
                                 "; give blocks that are to grow room"});
      }
      const BlockWord word = BlockWord::used(found.word.stream(), found.word.tag(), found.word.cache());
      found.slot->set(word.with_bytes(to.count));
      return {};
    }
  }
  return extend_piece(found, to, index, cache);
}

Result<void, GrowError> Engine::extend_piece(const Found& found, Bytes to, StreamIndex stream,
                                             ThreadCache* cache) {
  Piece& piece = *found.piece;
  const std::uint64_t takes = rounded_up(to.count, kQuantum);
  if (takes > piece.bytes) {
    const Need need{
        .kind = Need::Kind::kBehind, .bytes = takes - piece.bytes, .stream = stream, .block = &piece};
    if (auto more = satisfy(need, cache); !more) return more.error();
  }
  const MutexLock lock(lock_);
  if (closed_.load()) return GrowError(is_closed());
  if (takes < piece.bytes && to.count < piece.asked) shrink_piece(piece, takes, stream);
  piece.asked = to.count;
  piece.size_class = kNoClass;  // it has no size of a class any more
  piece.own.set(BlockWord::used(found.word.stream(), found.word.tag(), 0));
  return {};
}

// What is given up in a block's room is nobody else's place: the room goes, too.
void Engine::shrink_piece(Piece& piece, std::uint64_t to, StreamIndex stream) {
  const Address end = piece.end();
  to = std::max(to, kGranule);  // no other piece may begin where this one does
  if (to >= piece.bytes) return;
  heap_.narrow(piece, to, stream, streams_.epoch(stream));
  if (piece.room_end != 0) stock_.give_up_room(piece.base, end, std::exchange(piece.room_end, 0));
  streams_.mark_if_own(stream, ThreadTable::thread_number());
}

}  // namespace gpumem::allocator
