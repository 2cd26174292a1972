#include <algorithm>

#include "client/allocator/engine.h"

// Blocks that further streams use than the one they are freed on.

namespace gpumem::allocator {

// The per-thread default stream can be marked by its own thread only, and another one may free the block. The
// legacy default stream comes after the work of all threads.
Result<void> Engine::record_stream(Address address, StreamHandle stream) {
  if (auto can = usable(); !can) return can;
  const MutexLock lock(lock_);
  if (closed_.load()) return is_closed();
  auto found = find(address, kUnknownSize);
  if (!found) return found.error();
  auto index = stream_of(Streams::is_per_thread(stream) ? nullptr : stream);
  if (!index) return index.error();
  std::uint64_t expected = found->word.bits();
  if (!found->slot->word.compare_exchange_strong(expected, found->word.with_recorded_streams().bits()))
    return Error{Code::kInvalidArgument, "the block is freed at this moment"};
  auto& users = recorded_[address];
  if (std::ranges::find(users, *index) != users.end()) return {};
  users.push_back(*index);
  streams_.hold(*index);
  streams_.record(*index);
  return {};
}

void Engine::free_recorded(const Block& block, StreamIndex stream) {
  HeldBlock held{.block = block, .freed = {stream, streams_.epoch(stream)}, .users = {}};
  const auto node = recorded_.extract(block.address);
  for (const StreamIndex user : node.mapped()) {
    if (user == stream) {
      streams_.let_go(user);
    } else {
      held.users.push_back({user, streams_.freed_elsewhere(user)});
    }
  }
  if (held.users.empty()) {
    free_block(*map_.find(block.address), block, stream, held.freed.epoch);
    return;
  }
  streams_.hold(stream);
  held_.push_back(std::move(held));
}

bool Engine::is_used_still(const HeldBlock& held) const {
  return std::ranges::any_of(held.users, [this](const HeldBlock::Use& use) GPUMEM_REQUIRES(lock_) {
    return streams_.reached(use.stream) <= use.epoch;
  });
}

void Engine::free_held() {
  const auto done = std::partition(
      held_.begin(), held_.end(),
      [this](const HeldBlock& held) GPUMEM_THREAD(no_thread_safety_analysis) { return is_used_still(held); });
  const std::vector<HeldBlock> idle(done, held_.end());
  held_.erase(done, held_.end());
  for (const auto& [block, freed, users] : idle) {
    free_block(*map_.find(block.address), block, freed.stream, freed.epoch);
    streams_.let_go(freed.stream);
    for (const HeldBlock::Use& use : users) streams_.let_go(use.stream);
  }
}

std::vector<StreamIndex> Engine::awaited_streams() const {
  std::vector<StreamIndex> streams;
  for (const HeldBlock& held : held_) {
    streams.push_back(held.freed.stream);
    for (const HeldBlock::Use& use : held.users) streams.push_back(use.stream);
  }
  return streams;
}

}  // namespace gpumem::allocator
