#pragma once
#include <cstddef>

// The functions of a library that has another project's allocator.

extern "C" {

/// A pool on the current device. `percent`  of the device's free memory that it takes at once; 0: nothing.
/// Null  it could not be made; standard error says why.
void* peer_open(int percent);
void peer_close(void* pool);

/// Null  out of memory; standard error says why.
void* peer_allocate(void* pool, std::size_t bytes, void* stream);
void peer_deallocate(void* pool, void* block, std::size_t bytes, void* stream);

/// Bytes of the device that the pool has at this moment.
std::size_t peer_kept(void* pool);

}  // extern "C"
