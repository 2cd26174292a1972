#include "daemon/host/token.h"

#include <array>

#include "base/random.h"

namespace gpumem::host {

std::string make_token() {
  std::array<char, 32> random{};
  fill_random(random);
  constexpr char kHex[] = "0123456789abcdef";
  std::string token;
  for (const char byte : random) {
    token += kHex[static_cast<unsigned char>(byte) >> 4];
    token += kHex[byte & 15];
  }
  return token;
}

}  // namespace gpumem::host
