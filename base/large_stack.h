#pragma once
#include <type_traits>

namespace gpumem {

/// Calls `work(argument)` in this thread, on a stack of 1 MiB: the caller's may be as small as those that
/// programs give their fibres. Another thread would not do: the caller may hold the loader's lock. Without
/// memory for a stack, and in a sanitized build, it is the caller's. An exception passes on to the caller.
void on_large_stack(void (*work)(void* argument), void* argument);

/// Returns what `work()` returns.
template <class Work>
auto on_large_stack(const Work& work) {
  using Result = std::invoke_result_t<const Work&>;
  struct Call {
    const Work& work;
    Result result{};
  } call{work};
  on_large_stack([](void* of) { static_cast<Call*>(of)->result = static_cast<Call*>(of)->work(); }, &call);
  return call.result;
}

}  // namespace gpumem
