#pragma once
#include <cstddef>
#include <span>

namespace gpumem {

/// Fills `bytes`, 256 at most, from the kernel's generator: nobody guesses them.
void fill_random(std::span<char> bytes);

}  // namespace gpumem
