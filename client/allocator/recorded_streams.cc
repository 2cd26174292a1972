#include "client/allocator/recorded_streams.h"

#include <algorithm>

namespace gpumem::allocator {

void RecordedStreams::record(Address address, StreamIndex stream) {
  auto& users = recorded_[address];
  if (std::ranges::find(users, stream) != users.end()) return;
  users.push_back(stream);
  streams_.hold(stream);
  streams_.record(stream);
}

bool RecordedStreams::hold(const Block& block, StreamIndex stream) {
  HeldBlock held{.block = block, .freed = {stream, streams_.epoch(stream)}, .users = {}};
  const auto node = recorded_.extract(block.address);
  for (const StreamIndex user : node.mapped()) {
    if (user == stream) {
      streams_.let_go(user);
    } else {
      held.users.push_back({user, streams_.freed_elsewhere(user)});
    }
  }
  if (held.users.empty()) return false;
  streams_.hold(stream);
  held_.push_back(std::move(held));
  return true;
}

bool RecordedStreams::is_used_still(const HeldBlock& held) const {
  return std::ranges::any_of(held.users,
                             [this](const Use& use) { return streams_.reached(use.stream) <= use.epoch; });
}

std::vector<RecordedStreams::HeldBlock> RecordedStreams::take_idle() {
  const auto done = std::partition(held_.begin(), held_.end(),
                                   [this](const HeldBlock& held) { return is_used_still(held); });
  std::vector<HeldBlock> idle(done, held_.end());
  held_.erase(done, held_.end());
  return idle;
}

void RecordedStreams::let_go(const HeldBlock& held) {
  streams_.let_go(held.freed.stream);
  for (const Use& use : held.users) streams_.let_go(use.stream);
}

}  // namespace gpumem::allocator
