#pragma once
#include <malloc.h>

#include <cstddef>

namespace gpumem::bench {

/// Bytes that the heap has given out.
inline std::size_t heap_in_use() {
  const auto info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace gpumem::bench
