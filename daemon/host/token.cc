#include "daemon/host/token.h"

#include <sys/random.h>

#include <array>

#include "base/check.h"

namespace gpumem::host {

std::string make_token() {
  std::array<unsigned char, 32> random{};
  // Up to 256 bytes are never interrupted nor short once the kernel's generator has been seeded.
  GPUMEM_CHECK(::getrandom(random.data(), random.size(), 0) == static_cast<ssize_t>(random.size()),
               "random bytes");
  constexpr char kHex[] = "0123456789abcdef";
  std::string token;
  for (const unsigned char byte : random) {
    token += kHex[byte >> 4];
    token += kHex[byte & 15];
  }
  return token;
}

}  // namespace gpumem::host
