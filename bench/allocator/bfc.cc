#include "bench/allocator/bfc.h"

#include <bit>

namespace gpumem::bench {

std::uint64_t Bfc::allocate(Bytes bytes, std::uint32_t) {
  const std::uint64_t size = (bytes.count + kUnit - 1) / kUnit * kUnit;
  const std::lock_guard lock(mutex_);
  Handle found = find(size);
  if (found == kNone && extend(size)) found = find(size);
  if (found == kNone) return 0;
  by_address_.emplace(chunks_[found].address, found);
  return chunks_[found].address;
}

void Bfc::deallocate(std::uint64_t address, Bytes, std::uint32_t) {
  const std::lock_guard lock(mutex_);
  const auto known = by_address_.find(address);
  Handle handle = known->second;
  by_address_.erase(known);
  chunks_[handle].in_use = false;
  const Handle next = chunks_[handle].next;
  if (next != kNone && !chunks_[next].in_use) {
    remove(next);
    handle = join(handle, next);
  }
  const Handle previous = chunks_[handle].previous;
  if (previous != kNone && !chunks_[previous].in_use) {
    remove(previous);
    handle = join(previous, handle);
  }
  put(handle);
}

std::size_t Bfc::bin_of(std::uint64_t size) {
  const auto power = static_cast<std::size_t>(std::bit_width(size / kUnit)) - 1;
  return std::min(power, kBins - 1);
}

Bfc::Handle Bfc::find(std::uint64_t size) {
  for (std::size_t bin = bin_of(size); bin < kBins; ++bin) {
    const auto fits = bins_[bin].lower_bound({{size, 0}, 0});
    if (fits == bins_[bin].end()) continue;
    const Handle handle = fits->second;
    bins_[bin].erase(fits);
    const std::uint64_t has = chunks_[handle].size;
    if (has >= 2 * size || has - size >= kMostWaste) split(handle, size);
    chunks_[handle].in_use = true;
    return handle;
  }
  return kNone;
}

bool Bfc::extend(std::uint64_t size) {
  bool doubled = false;
  for (; size > next_region_; doubled = true) next_region_ *= 2;
  const std::uint64_t available = memory_.capacity().minus(memory_.committed()).count;
  std::uint64_t region = std::min(next_region_, available);
  std::uint64_t at = 0;
  // A region that cannot be had is tried again, a tenth smaller.
  while (region >= size && (at = memory_.take({region})) == 0) region = region / kUnit * 9 / 10 * kUnit;
  if (at == 0) return false;
  if (!doubled) next_region_ *= 2;
  put(new_chunk({at, region, kNone, kNone, false}));
  return true;
}

void Bfc::split(Handle handle, std::uint64_t size) {
  const Handle rest = new_chunk(
      {chunks_[handle].address + size, chunks_[handle].size - size, handle, chunks_[handle].next, false});
  Chunk& first = chunks_[handle];
  if (first.next != kNone) chunks_[first.next].previous = rest;
  first.next = rest;
  first.size = size;
  put(rest);
}

Bfc::Handle Bfc::join(Handle first, Handle second) {
  chunks_[first].size += chunks_[second].size;
  chunks_[first].next = chunks_[second].next;
  if (chunks_[first].next != kNone) chunks_[chunks_[first].next].previous = first;
  unused_.push_back(second);
  return first;
}

void Bfc::put(Handle handle) {
  const Chunk& chunk = chunks_[handle];
  bins_[bin_of(chunk.size)].insert({{chunk.size, chunk.address}, handle});
}

void Bfc::remove(Handle handle) {
  const Chunk& chunk = chunks_[handle];
  bins_[bin_of(chunk.size)].erase({{chunk.size, chunk.address}, handle});
}

Bfc::Handle Bfc::new_chunk(const Chunk& chunk) {
  if (unused_.empty()) {
    chunks_.push_back(chunk);
    return static_cast<Handle>(chunks_.size() - 1);
  }
  const Handle handle = unused_.back();
  unused_.pop_back();
  chunks_[handle] = chunk;
  return handle;
}

}  // namespace gpumem::bench
