#pragma once
#include <optional>
#include <type_traits>
#include <utility>

namespace gpumem {

/// Calls `work(argument)` in this thread, on a stack of 1 MiB: the caller's may be as small as those that
/// programs give their fibres. Another thread would not do: the caller may hold the loader's lock. Without
/// memory for a stack, in a sanitized build and within such a call, it is the caller's. An exception passes
/// on to the caller.
void on_large_stack(void (*work)(void* argument), void* argument);

/// Returns what `work()` returns.
template <class Work>
auto on_large_stack(const Work& work) {
  using Result = std::invoke_result_t<const Work&>;
  struct Call {
    const Work& work;
    std::optional<std::conditional_t<std::is_void_v<Result>, bool, Result>> result{};
  } call{work};
  on_large_stack(
      [](void* of) {
        Call& made = *static_cast<Call*>(of);
        if constexpr (std::is_void_v<Result>)
          made.work();
        else
          made.result.emplace(made.work());
      },
      &call);
  if constexpr (!std::is_void_v<Result>) return std::move(*call.result);
}

}  // namespace gpumem
