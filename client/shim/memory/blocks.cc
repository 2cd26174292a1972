#include "client/shim/memory/blocks.h"

namespace gpumem::shim {

void Blocks::add(Block block) {
  const MutexLock lock(mutex_);
  block.id = ++last_id_;
  blocks_.insert_or_assign(block.at, block);
}

void Blocks::put_back(const Block& block) {
  const MutexLock lock(mutex_);
  blocks_.insert_or_assign(block.at, block);
}

std::optional<Block> Blocks::take(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return std::nullopt;
  const Block block = found->second;
  blocks_.erase(found);
  return block;
}

std::optional<Block> Blocks::find(CUdeviceptr address) const {
  const MutexLock lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const Block& block = std::prev(after)->second;
  return block.holds(address) ? std::optional(block) : std::nullopt;
}

void Blocks::set_synchronous(CUdeviceptr address, bool is_synchronous) {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(address);
  if (found != blocks_.end()) found->second.is_synchronous = is_synchronous;
}

std::vector<Block> Blocks::take_of(CUcontext context) {
  const MutexLock lock(mutex_);
  std::vector<Block> taken;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const bool ends = it->second.context == context;
    if (ends) taken.push_back(it->second);
    it = ends ? blocks_.erase(it) : std::next(it);
  }
  return taken;
}

void Blocks::move(CUcontext from, CUcontext to) {
  const MutexLock lock(mutex_);
  for (auto& [at, block] : blocks_)
    if (block.context == from) block.context = to;
}

}  // namespace gpumem::shim
