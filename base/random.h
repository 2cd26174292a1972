#pragma once
#include <sys/random.h>

#include <span>

#include "base/check.h"

namespace gpumem {

/// Fills `bytes`, 256 at most, from the kernel's generator: nobody guesses them.
inline void fill_random(std::span<char> bytes) {
  // So few are never interrupted nor short once the kernel's generator has been seeded.
  GPUMEM_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
               "random bytes");
}

}  // namespace gpumem
