#include "client/shim/memory/blocks/ipc_blocks.h"

#include <algorithm>
#include <chrono>

#include "client/session/connection.h"
#include "client/session/import_state.h"
#include "client/shim/memory/blocks/device_memory.h"
#include "client/shim/real.h"

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

namespace {

constinit RealCall<decltype(::cuDeviceCanAccessPeer)> real_reaches("cuDeviceCanAccessPeer");

// Copies between devices reach what the driver opens without peer access, but borrowed memory only with it.
void allow_peer(client::ImportState& memory, int ordinal) {
  const int owner = memory.device().device->ordinal;
  int reaches = 0;
  if (ordinal != owner && real_reaches(&reaches, ordinal, owner) == CUDA_SUCCESS && reaches != 0)
    (void)memory.allow(ordinal);
}

/// In another session if the process's is lost, which may turn out by the attempt.
Result<std::unique_ptr<client::ImportState>> import_in(Session& session, const Imports::Bytes64& handle) {
  for (;;) {
    auto connection = session.usable();
    if (!connection) return connection.error();
    if (*connection == nullptr) return Error{Code::kFailedPrecondition, "cuInit has failed"};
    auto opened = client::ImportState::open(*connection, handle);
    if (opened || !(*connection)->lane().is_closed()) return opened;
  }
}

}  // namespace

struct Imports::Open {
  std::unique_ptr<client::ImportState> memory;
  Bytes64 handle{};
  std::map<CUcontext, unsigned> uses{};  ///< how often each has opened it; none zero
};

Imports::Imports() = default;
Imports::~Imports() = default;

std::optional<CUdeviceptr> Imports::reopen(const Bytes64& handle, CUcontext context) {
  const MutexLock lock(mutex_);
  const auto known = by_handle_.find(handle);
  if (known == by_handle_.end()) return std::nullopt;
  ++open_.at(known->second).uses[context];
  return known->second;
}

Result<CUdeviceptr> Imports::open(Session& session, const Bytes64& handle, CUcontext context,
                                  WaitPolicy::Clock::time_point end) {
  const MutexLock opening(opening_);
  if (const auto known = reopen(handle, context)) return *known;
  auto opened = ask_while_away(end, [&] { return import_in(session, handle); });
  if (!opened) return opened.error();
  const CUdeviceptr at = (*opened)->address();
  const MutexLock lock(mutex_);
  for (const int user : users_) allow_peer(**opened, user);
  open_.emplace(at, Open{std::move(*opened), handle, {{context, 1}}});
  by_handle_.emplace(handle, at);
  return at;
}

void Imports::allow(int ordinal) {
  const MutexLock lock(mutex_);
  if (std::ranges::find(users_, ordinal) != users_.end()) return;
  users_.push_back(ordinal);
  for (auto& [at, open] : open_) allow_peer(*open.memory, ordinal);
}

bool Imports::close(CUdeviceptr address, CUcontext context) {
  std::unique_ptr<client::ImportState> last;  // unmapped and released behind the lock
  const MutexLock lock(mutex_);
  const auto found = open_.find(address);
  if (found == open_.end()) return false;
  auto& uses = found->second.uses;
  const auto of_context = uses.find(context);
  const auto use = of_context != uses.end() ? of_context : uses.begin();
  if (--use->second == 0) uses.erase(use);
  if (!uses.empty()) return true;
  last = std::move(found->second.memory);
  by_handle_.erase(found->second.handle);
  open_.erase(found);
  return true;
}

void Imports::ended(CUcontext context) {
  std::vector<std::unique_ptr<client::ImportState>> last;  // as above
  const MutexLock lock(mutex_);
  for (auto it = open_.begin(); it != open_.end();) {
    Open& open = it->second;
    const bool ends = open.uses.erase(context) != 0 && open.uses.empty();
    if (ends) {
      last.push_back(std::move(open.memory));
      by_handle_.erase(open.handle);
    }
    it = ends ? open_.erase(it) : std::next(it);
  }
}

void Imports::move(CUcontext from, CUcontext to) {
  const MutexLock lock(mutex_);
  for (auto& [at, open] : open_) {
    const auto uses = open.uses.extract(from);
    if (!uses.empty()) open.uses[to] += uses.mapped();
  }
}

std::optional<Imports::Block> Imports::find(CUdeviceptr address) const {
  const MutexLock lock(mutex_);
  const auto after = open_.upper_bound(address);
  if (after == open_.begin()) return std::nullopt;
  const client::ImportState& memory = *std::prev(after)->second.memory;
  if (address - memory.address() >= memory.bytes().count) return std::nullopt;
  return Block{memory.address(), memory.bytes()};
}

bool Imports::has_address(CUdeviceptr address) const {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(open_,
                             [address](const auto& one) { return one.second.memory->has_address(address); });
}

}  // namespace gpumem::shim
