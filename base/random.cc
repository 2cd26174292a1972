#include "base/random.h"

#include <sys/random.h>

#include "base/check.h"

namespace gpumem {

// So few are never interrupted nor short once the kernel's generator has been seeded.
void fill_random(std::span<char> bytes) {
  GPUMEM_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
               "random bytes");
}

}  // namespace gpumem
