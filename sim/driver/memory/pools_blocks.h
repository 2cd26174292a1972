#pragma once
#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sim/driver/streams.h"

namespace gpumem::sim {

/// How one pool's chunks of memory are cut into blocks: used ones, and free ones that may be taken once the
/// point in a stream at which they were freed suits the taker.
/// Invariant: the blocks of a chunk fill it; free neighbours of one chunk are one block if the same stream,
/// or none, frees them. Threads: the caller holds the driver's lock.
class Blocks {
 public:
  static constexpr std::uint64_t kAlignment = 512;

  struct Block {
    CUdeviceptr chunk = 0;
    std::uint64_t size = 0;    ///< a multiple of kAlignment
    std::uint64_t wanted = 0;  ///< what was asked for
    bool is_used = false;
    std::uint64_t id = 0;  ///< of a used block; no other one has it
    Ticket freed{};        ///< of a free block: where it was freed; a default ticket: free for everyone
  };
  struct Taken {
    CUdeviceptr address = 0;
    Ticket freed;  ///< what the new use must come after
  };

  /// Adds memory that is free for everyone.
  void add_chunk(CUdeviceptr start, std::uint64_t size);
  void remove_chunk(CUdeviceptr start);

  /// Takes `wanted` bytes out of the smallest free block that has room and that `may_take` accepts.
  std::optional<Taken> take(std::uint64_t wanted, const std::function<bool(const Ticket&)>& may_take);
  /// Takes exactly these bytes of a chunk. False if they are not all in one free block.
  bool take_at(CUdeviceptr address, std::uint64_t wanted);
  /// Frees the used block that begins at `address`, for others after `freed`. False if there is none.
  bool give_back(CUdeviceptr address, Ticket freed);
  /// Makes blocks free for everyone whose free points are past.
  void settle();

  /// The used block that holds `address`, with its start; nullptr if there is none.
  std::pair<CUdeviceptr, const Block*> find_used(CUdeviceptr address) const;
  /// All chunks by start, with their sizes.
  const std::map<CUdeviceptr, std::uint64_t>& chunks() const { return chunks_; }
  /// The chunks that are free for everyone as a whole, the largest first.
  std::vector<CUdeviceptr> idle_chunks() const;

  std::uint64_t reserved() const { return reserved_; }
  std::uint64_t used() const { return used_; }
  bool has_used() const { return used_ > 0; }

  static std::uint64_t rounded(std::uint64_t wanted);

 private:
  using Map = std::map<CUdeviceptr, Block>;
  void use(Map::iterator block, std::uint64_t wanted);
  void cut_after(Map::iterator block, std::uint64_t size);
  void list(Map::iterator block);
  void unlist(Map::iterator block);
  void join(Map::iterator block);
  bool can_join(Map::iterator left, Map::iterator right) const;

  Map blocks_;
  std::map<CUdeviceptr, std::uint64_t> chunks_;
  std::set<std::pair<std::uint64_t, CUdeviceptr>> free_;  ///< by size
  std::set<CUdeviceptr> unsettled_;                       ///< free, but not for everyone
  std::uint64_t reserved_ = 0, used_ = 0;
};

}  // namespace gpumem::sim
