#include "client/shim/memory/exports.h"

#include <algorithm>
#include <chrono>

#include "client/shim/memory/device_memory.h"

namespace gpumem::shim {
namespace {

// The driver's handles do not expire; the broker's live a day at most, for a million uses.
constexpr std::chrono::hours kLife{24};
constexpr std::uint64_t kUses = 1'000'000;

}  // namespace

Result<Exports::Bytes64> Exports::handle_of(const Block& block) {
  if (const auto known = find(block.id)) return *known;
  const Slices* const slices = block.memory->slices_of(block.at);
  if (slices == nullptr) return Error{Code::kInvalidArgument, "no such block"};
  auto made = slices->engine().export_handle(block.at, {}, block.bytes, {kLife, kUses});
  if (!made) return made.error();
  {
    const MutexLock lock(mutex_);
    const auto [entry, is_new] = by_block_.emplace(block.id, *made);
    if (is_new) return *made;
  }
  slices->revoke(*made);  // another thread was first
  return handle_of(block);
}

bool Exports::is_own(const Bytes64& handle) const {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(by_block_, [&](const auto& one) { return one.second == handle; });
}

void Exports::end(const Block& block) {
  const auto handle = take(block.id);
  if (const Slices* const slices = handle ? block.memory->slices_of(block.at) : nullptr)
    slices->revoke(*handle);
}

std::optional<Exports::Bytes64> Exports::find(unsigned long long block) const {
  const MutexLock lock(mutex_);
  const auto known = by_block_.find(block);
  return known == by_block_.end() ? std::nullopt : std::optional(known->second);
}

std::optional<Exports::Bytes64> Exports::take(unsigned long long block) {
  const MutexLock lock(mutex_);
  const auto entry = by_block_.extract(block);
  return entry.empty() ? std::nullopt : std::optional(entry.mapped());
}

}  // namespace gpumem::shim
