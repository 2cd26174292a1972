#include "bench/allocator/caching.h"

namespace gpumem::bench {
namespace {

constexpr std::uint64_t kUnit = 512;
constexpr std::uint64_t kSmall = 1ULL << 20;  // the largest that is small
constexpr std::uint64_t kSmallSegment = 2ULL << 20;
constexpr std::uint64_t kLargeSegment = 20ULL << 20;
constexpr std::uint64_t kOwnSegment = 10ULL << 20;  // from here on
constexpr std::uint64_t kSegmentUnit = 2ULL << 20;

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

std::uint64_t segment_size(std::uint64_t size) {
  if (size <= kSmall) return kSmallSegment;
  return size < kOwnSegment ? kLargeSegment : rounded(size, kSegmentUnit);
}

}  // namespace

std::uint64_t Caching::allocate(Bytes bytes, std::uint32_t stream) {
  const std::uint64_t size = rounded(bytes.count, kUnit);
  const bool small = size <= kSmall;
  const std::lock_guard lock(mutex_);
  Block* block = find(small ? small_ : large_, size, stream);
  if (block == nullptr) {
    const bool expands = segments_ == Segments::kExpandable;
    block = expands ? expanded(size, stream, small) : new_segment(size, stream, small);
  }
  if (block == nullptr) return 0;
  const std::uint64_t rest = block->size - size;
  if (small ? rest >= kUnit : rest > kSmall) split(*block, size);
  block->in_use = true;
  return block->address;
}

void Caching::deallocate(std::uint64_t address, Bytes, std::uint32_t) {
  const std::lock_guard lock(mutex_);
  Block& block = *blocks_.find(address)->second;
  block.in_use = false;
  absorb(block, block.next);
  Block* previous = block.previous;
  if (previous == nullptr || previous->in_use) {
    pool_of(block).insert(&block);
    return;
  }
  pool_of(*previous).erase(previous);
  absorb(*previous, &block);
  pool_of(*previous).insert(previous);
}

Caching::Block* Caching::find(Pool& pool, std::uint64_t size, std::uint32_t stream) {
  Block key;
  key.stream = stream;
  key.size = size;
  const auto found = pool.lower_bound(&key);
  if (found == pool.end() || (*found)->stream != stream) return nullptr;
  Block* block = *found;
  pool.erase(found);
  return block;
}

Caching::Block* Caching::new_segment(std::uint64_t size, std::uint32_t stream, bool small) {
  const std::uint64_t whole = segment_size(size);
  std::uint64_t at = memory_.take({whole});
  if (at == 0) {
    release_free(large_);
    release_free(small_);
    at = memory_.take({whole});
  }
  if (at == 0) return nullptr;
  return new_block(at, whole, stream, small);
}

Caching::Block* Caching::expanded(std::uint64_t size, std::uint32_t stream, bool small) {
  const std::uint64_t unit = small ? kSmallSegment : kLargeSegment;
  Block*& end = ends_[{stream, small}];
  const bool has_rest = end != nullptr && !end->in_use;
  const std::uint64_t more = rounded(size - (has_rest ? end->size : 0), unit);
  if (memory_.take({more}) == 0) return nullptr;
  if (has_rest) {
    pool_of(*end).erase(end);
    end->size += more;
    return end;
  }
  // Addresses for every segment, enough for ever.
  const std::uint64_t first = (1 + 2ULL * stream + (small ? 1 : 0)) << 45;
  Block* block = new_block(end == nullptr ? first : end->address + end->size, more, stream, small);
  block->previous = end;
  if (end != nullptr) end->next = block;
  return end = block;
}

Caching::Block* Caching::new_block(std::uint64_t at, std::uint64_t size, std::uint32_t stream, bool small) {
  auto block = std::make_unique<Block>();
  block->address = at;
  block->size = size;
  block->stream = stream;
  block->small = small;
  return blocks_.emplace(at, std::move(block)).first->second.get();
}

void Caching::release_free(Pool& pool) {
  for (auto at = pool.begin(); at != pool.end();) {
    const Block& block = **at;
    if (block.previous != nullptr || block.next != nullptr) {
      ++at;
      continue;
    }
    const std::uint64_t address = block.address;
    at = pool.erase(at);
    memory_.give_back(address);
    blocks_.erase(address);
  }
}

void Caching::split(Block& block, std::uint64_t size) {
  auto rest = std::make_unique<Block>(block);
  rest->address += size;
  rest->size -= size;
  rest->previous = &block;
  if (block.next != nullptr) block.next->previous = rest.get();
  block.next = rest.get();
  if (segments_ == Segments::kExpandable && rest->next == nullptr)
    ends_[{block.stream, block.small}] = rest.get();
  block.size = size;
  pool_of(block).insert(rest.get());
  const std::uint64_t address = rest->address;
  blocks_.emplace(address, std::move(rest));
}

// Joins a block with the one behind it, if that is free.
void Caching::absorb(Block& into, Block* neighbour) {
  if (neighbour == nullptr || neighbour->in_use) return;
  pool_of(*neighbour).erase(neighbour);
  into.size += neighbour->size;
  into.next = neighbour->next;
  if (into.next != nullptr) into.next->previous = &into;
  if (segments_ == Segments::kExpandable && into.next == nullptr) ends_[{into.stream, into.small}] = &into;
  blocks_.erase(neighbour->address);
}

}  // namespace gpumem::bench
