#pragma once
#include <unordered_map>
#include <vector>

#include "client/allocator/slab_bins.h"
#include "client/allocator/streams.h"

namespace gpumem::allocator {

/// The further streams that use blocks (Allocator::record_stream), and the freed blocks that wait for these.
/// Holds each stream that it names.
/// Threads  under the allocator's lock.
class RecordedStreams {
 public:
  explicit RecordedStreams(Streams& streams) : streams_(streams) {}

  /// `stream` uses the block in use at `address`, too.
  void record(Address address, StreamIndex stream);

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
  /// Holds `block`, which is freed on `stream`. False: no other stream uses it, so it is free.
  bool hold(const Block& block, StreamIndex stream);
  /// Removes the blocks that their recorded streams do not use any more. Pass each to let_go().
  std::vector<HeldBlock> take_idle();
  void let_go(const HeldBlock& held);

 private:
  bool is_used_still(const HeldBlock& held) const;

  Streams& streams_;
  std::unordered_map<Address, std::vector<StreamIndex>> recorded_;  ///< blocks in use
  std::vector<HeldBlock> held_;
};

}  // namespace gpumem::allocator
