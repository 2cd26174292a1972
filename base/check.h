#pragma once
#include <cstdio>
#include <cstdlib>

namespace gpumem {

/// Ends the process: an invariant of our own is broken, and going on would spread the damage. The
/// kernel then ends every lane, and clients keep the memory they have.
[[noreturn]] inline void check_failed(const char* condition, const char* words, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, words, condition);
  std::abort();
}

}  // namespace gpumem

/// Holds in every build. For our own invariants only: bad input gets an Error.
#define GPUMEM_CHECK(condition, words) \
  ((condition) ? static_cast<void>(0) : ::gpumem::check_failed(#condition, words, __FILE__, __LINE__))
