#pragma once
#include <string>

namespace gpumem::host {

/// 256 bits from the kernel, in hexadecimal: nobody guesses a session's token.
std::string make_token();

}  // namespace gpumem::host
