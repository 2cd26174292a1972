#include "tests/model/allocator/world.h"

#include <cstring>

#include "tests/support/allocator/broken_rule.h"

namespace gpumem::test {
namespace {

constexpr std::uint64_t kStride = 256 << 10;

/// Calls `each(pointer, bytes)` for the painted places of a block from `from` on: beginning, end, between.
template <class Each>
void for_each_place(const Block& block, std::uint64_t from, Each&& each) {
  auto* const memory = reinterpret_cast<unsigned char*>(block.at);
  const std::uint64_t size = block.bytes.count;
  const std::uint64_t word = std::min<std::uint64_t>(size, sizeof block.id);
  for (std::uint64_t at = (from + kStride - 1) / kStride * kStride; at + 2 * word <= size; at += kStride) {
    each(memory + at, word);
  }
  each(memory + size - word, word);
}

}  // namespace

void paint(const Block& block, Bytes from) {
  for_each_place(block, from.count,
                 [&](unsigned char* place, std::uint64_t bytes) { std::memcpy(place, &block.id, bytes); });
}

bool is_painted(const Block& block) {
  bool all = true;
  for_each_place(block, 0, [&](const unsigned char* place, std::uint64_t bytes) {
    all = all && std::memcmp(place, &block.id, bytes) == 0;
  });
  return all;
}

World::World(const Shape& shape)
    : shape_(shape),
      backing_({.limit = shape.limit, .host_memory = shape.painted, .heeds_largest = !shape.contended}) {
  if (shape.shadowed) shadow_ = std::make_unique<Shadow>(backing_, streams_);
  streams_.set_lag(64);
  if (shape.announced) streams_.announce_ends();
  engine_ = std::make_unique<allocator::Engine>(
      borrow(backing_), borrow(streams_), allocator::EngineOptions{.background_task = shape.threads > 1});
  for (const char* name : {"weights", "activations", "cache"}) {
    auto tag = engine_->tag(name);
    if (!tag) broken_rule("no tag: " + to_string(tag.error()));
    tags_.emplace(name, *tag);
  }
  tags_.emplace("", Tag{});
}

World::~World() = default;

void World::leave(Block block) {
  const std::lock_guard lock(mutex_);
  left_.push_back(std::move(block));
}

std::optional<Block> World::find() {
  const std::lock_guard lock(mutex_);
  if (left_.empty()) return std::nullopt;
  Block block = std::move(left_.back());
  left_.pop_back();
  return block;
}

void World::finish() {
  while (const auto block = find()) {
    if (shape_.painted && !is_painted(*block)) broken_rule("a block was written over");
    if (shadow_) shadow_->free(block->id, block->at, block->bytes, block->used);
    if (shadow_) streams_.put_behind(block->stream, block->used);
    const auto freed = engine_->deallocate(block->at, block->bytes, block->stream);
    if (!freed) broken_rule("at the end, not freed: " + to_string(freed.error()));
  }
  const auto statistics = engine_->statistics();
  if (!statistics || !statistics->in_use.is_zero()) broken_rule("all freed, and something is in use");
  const auto closed = engine_->close();
  if (!closed) broken_rule("not closed: " + to_string(closed.error()));
  if (!backing_.committed().is_zero() || backing_.extents() != 0) {
    broken_rule("closed, and " + to_string(backing_.committed()) + " are held");
  }
  engine_.reset();
  if (streams_.marks() != 0) broken_rule(std::to_string(streams_.marks()) + " marks were never dropped");
}

}  // namespace gpumem::test
