#include "client/shim/figures.h"

// Holds where nothing else of the library defines it: then all memory is the device's.
[[gnu::weak]] bool gpumem_shim_figures(const unsigned char* /*uuid*/, std::uint64_t* /*total*/,
                                       std::uint64_t* /*used*/) {
  return false;
}
