#pragma once
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "client/allocator/streams.h"

namespace gpumem::allocator {

/// The further streams that use blocks (Allocator::record_stream), and the freed blocks that wait for these.
/// Holds each stream that it names.
/// Threads  under the allocator's lock.
class RecordedStreams {
 public:
  explicit RecordedStreams(Streams& streams) : streams_(streams) {}

  /// `stream` uses the block in use at `address`, too.
  void record(Address address, StreamIndex stream) {
    auto& users = recorded_[address];
    if (std::ranges::find(users, stream) != users.end()) return;
    users.push_back(stream);
    streams_.hold(stream);
  }

  /// Holds `block`, which is freed on `stream`. False: no other stream uses it, so it is free.
  bool hold(const Block& block, StreamIndex stream) {
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

  /// Removes the blocks that their recorded streams do not use any more, and calls `free` with each, the
  /// stream it was freed on, and the epoch of that.
  template <class Free>
  void free_idle(Free free) {
    const auto is_used_still = [this](const Use& use) { return streams_.reached(use.stream) <= use.epoch; };
    std::erase_if(held_, [&](const HeldBlock& held) {
      if (std::ranges::any_of(held.users, is_used_still)) return false;
      free(held.block, held.freed.stream, held.freed.epoch);
      streams_.let_go(held.freed.stream);
      for (const Use& use : held.users) streams_.let_go(use.stream);
      return true;
    });
  }

 private:
  struct Use {
    StreamIndex stream = kNoStream;
    std::uint64_t epoch = 0;
  };
  /// A freed block whose recorded streams may still use it.
  struct HeldBlock {
    Block block;
    Use freed;               ///< the stream it was freed on
    std::vector<Use> users;  ///< the recorded streams
  };

  Streams& streams_;
  std::unordered_map<Address, std::vector<StreamIndex>> recorded_;  ///< blocks in use
  std::vector<HeldBlock> held_;
};

}  // namespace gpumem::allocator
