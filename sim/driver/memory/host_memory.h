#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <vector>

namespace gpumem::sim {

/// Host memory that devices reach, of one process: allocated for that, or registered. It costs no device
/// memory. Its pages are there from then on, as if they were pinned. Threads: the caller holds the driver's
/// lock.
class HostMemory {
 public:
  struct Block {
    std::uint64_t start = 0, size = 0;
    std::uint64_t context = 0;
    unsigned flags = 0;          ///< as the call that made it was given them
    bool is_registered = false;  ///< the program's own memory
    std::uint64_t id = 0;        ///< never given out again
  };

  /// nullptr, with nothing changed: the system has no memory for it.
  void* allocate(std::uint64_t size, std::uint64_t context, unsigned flags);
  /// False if no block was allocated at `start`.
  bool free(std::uint64_t start);
  /// Errors  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED (it overlaps a block that is known),
  ///         CUDA_ERROR_INVALID_VALUE (the program has no memory there).
  CUresult add_registered(std::uint64_t start, std::uint64_t size, std::uint64_t context, unsigned flags);
  bool remove_registered(std::uint64_t start);

  /// The block that holds all the bytes, or nullptr.
  const Block* find(std::uint64_t address, std::uint64_t size = 1) const;
  /// Ends what belongs to `context`.
  void free_all_of(std::uint64_t context);

 private:
  bool overlaps(std::uint64_t start, std::uint64_t size) const;
  void erase(std::map<std::uint64_t, Block>::iterator block);

  std::map<std::uint64_t, Block> blocks_;
  std::uint64_t last_id_ = 1ULL << 62;  // far from the ids of device memory
};

}  // namespace gpumem::sim
