#pragma once
#include <chrono>
#include <vector>

#include "client/c/handles.h"

// The process's own allocators of one device follow each other: when the broker of one is gone, another takes
// its place at the broker that is there then. The older ones keep what was allocated from them. A program may
// use the handle of any of them for all.

namespace gpumem::c_abi {

/// The newest of the process's own allocators of the device, if `allocator` is one of them; else `allocator`.
gpumem_allocator& current_of(gpumem_allocator& allocator);

/// One of the process's own allocators.
struct DefaultAllocator {
  gpumem_allocator* handle = nullptr;
  std::chrono::nanoseconds taken{};  ///< of the broker's timeout, to open it
};

/// As gpumem_default_allocator.
Result<DefaultAllocator> default_allocator(int device);

/// The one that takes the place of `lost`, opened if need be, with its session.
/// Null  `lost` is not the process's own, its broker is not gone, or there is no other.
DefaultAllocator successor_of(gpumem_allocator& lost);

/// Allocates from the process's own allocator of the device, within one timeout with opening it.
gpumem_status allocate_from_default(int device, std::uint64_t bytes, gpumem_stream stream,
                                    gpumem_address* address) noexcept;

/// The engine that has the block at `address`: the allocator's own, unless another that current_of leads to
/// has it.
allocator::Engine& engine_of(gpumem_allocator& allocator, std::uint64_t address);

/// The newest of the process's own allocators of each device that has one.
std::vector<gpumem_allocator*> process_allocators();

/// The process's own allocator that blocks at `address` can be of. Null: none.
gpumem_allocator* process_allocator_of(std::uint64_t address);

}  // namespace gpumem::c_abi
