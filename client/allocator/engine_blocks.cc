#include <algorithm>
#include <utility>

#include "client/allocator/engine.h"

// Blocks that become longer or shorter in place, and blocks that are shared.

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
    auto known = stream_of(stream);
    if (!known) return GrowError(known.error());
    found = *block;
    index = *known;
    if (found.span->use == Span::Use::kSlab) {
      if (to.count > found.span->slot_bytes) {
        return GrowError(
            {Code::kAborted, "a block of up to 16 KiB cannot become larger than its size class of " +
                                 to_string(Bytes{found.span->slot_bytes}) +
                                 "; give blocks that are to grow room"});
      }
      found.slot->set(found.word.without_bytes().with_bytes(to.count));
      return {};
    }
    streams_.hold(index);
  }
  auto extended = extend_span(found, to, index, cache);
  const MutexLock lock(lock_);
  streams_.let_go(index);
  return extended;
}

Result<void, GrowError> Engine::extend_span(const Found& found, Bytes to, StreamIndex stream,
                                            ThreadCache* cache) {
  Span& span = *found.span;
  const std::uint64_t takes = rounded_up(to.count, kQuantum);
  if (takes > span.bytes) {
    const Need need{.kind = Need::Kind::kAfter,
                    .bytes = takes - span.bytes,
                    .stream = stream,
                    .block = &span,
                    .wait = options_.wait};
    if (auto more = satisfy(need, cache); !more) return more.error();
  }
  const MutexLock lock(lock_);
  if (closed_.load()) return GrowError(is_closed());
  const BlockWord word = span.own.get();
  const bool shorter = takes < span.bytes && to.count < span.requested;
  if (shorter && !word.has_recorded_streams()) shrink_span(span, takes, stream);
  span.requested = to.count;
  span.size_class = kNoClass;  // its size is no longer that of a class
  span.own.set(word.without_bytes());
  return {};
}

// Memory inside a block's room cannot be used by other blocks, so the room is released too.
void Engine::shrink_span(Span& span, std::uint64_t to, StreamIndex stream) {
  const Address end = span.end();
  to = std::max(to, kGranule);  // no other span may begin where this one does
  if (to >= span.bytes) return;
  heap_.narrow(span, to, stream, streams_.epoch(stream));
  if (span.room_end != 0) extents_.release_room(span.base, end, std::exchange(span.room_end, 0));
  streams_.freed(stream);
}

Result<Backing::HandleBytes> Engine::export_handle(Address address, Bytes offset, Bytes bytes,
                                                   const ExportOptions& options) {
  if (auto can = usable(); !can) return can.error();
  std::shared_ptr<Backing> backing;
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return is_closed();
    const auto block = find(address, kUnknownSize);
    if (!block) return block.error();
    if (bytes.is_zero()) bytes = block->bytes.minus(offset);
    const auto end = offset.plus(bytes);
    if (bytes.is_zero() || !end || *end > block->bytes) {
      return Error{Code::kInvalidArgument, to_string(bytes) + " from " + to_string(offset) +
                                               " on are not in the block of " + to_string(block->bytes)};
    }
    backing = backing_;
  }
  return backing->export_range(address + offset.count, bytes, options);
}

Result<void> Engine::allow(int ordinal) {
  if (auto can = usable(); !can) return can;
  const MutexLock lock(lock_);
  return closed_.load() ? Result<void>(is_closed()) : backing_->allow(ordinal);
}

}  // namespace gpumem::allocator
