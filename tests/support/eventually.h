#pragma once
#include <chrono>
#include <thread>

namespace gpumem::test {

/// How long a test waits for what must come: only a failing test ever waits so long.
inline constexpr std::chrono::seconds kPatience{20};

/// Whether `condition` comes true; asks again and again until it does, or patience ends.
template <class Condition>
bool eventually(Condition&& condition, std::chrono::milliseconds patience = kPatience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (std::chrono::milliseconds pause{1}; !condition();
       pause = std::min(2 * pause, std::chrono::milliseconds(20))) {
    if (std::chrono::steady_clock::now() >= end) return condition();
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace gpumem::test
