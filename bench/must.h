#pragma once
#include <cstdio>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "gpumem/result.h"

namespace gpumem::bench {

/// A benchmark whose ground is broken has nothing to say: main() reports it and cleans up.
[[noreturn]] inline void give_up(const std::string& what, const std::string& why) {
  throw std::runtime_error(what + ": " + why);
}

inline void require(bool holds, const char* what, const std::string& why = "failed") {
  if (!holds) give_up(what, why);
}

/// The value, or the end of the run.
template <class Value, class Failure>
Value must(Result<Value, Failure> result, const char* what) {
  if (!result) give_up(what, result.error().message);
  if constexpr (!std::is_void_v<Value>) return std::move(*result);
}

/// The body of main(): `run` returns the exit status; an error is printed, and the status is 1.
template <class Run>
int main_of(const char* program, Run&& run) {
  try {
    return run();
  } catch (const std::exception& broken) {
    std::fprintf(stderr, "%s: %s\n", program, broken.what());
    return 1;
  }
}

}  // namespace gpumem::bench
