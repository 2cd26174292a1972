#pragma once
#include <atomic>
#include <filesystem>

namespace gpumem::shim {

/// The real driver's function with exactly this exported name, or null: there is no driver, or it does not
/// have the call. The first use loads the driver (driver_search.h). Threads  any; holds no lock of its own.
/// Costs a dlsym: whoever calls often keeps the result (RealCall).
void* real_symbol(const char* name) noexcept;

/// The folder that the real driver's library was loaded from; empty if there is none.
const std::filesystem::path& real_folder();

/// What a call answers that real_symbol does not find.
int answer_without_real() noexcept;

/// real_symbol as a pointer to a function of type F.
template <class F>
F real(const char* name) {
  return reinterpret_cast<F>(real_symbol(name));
}

/// A function of the real driver that is looked up once:
///     constinit RealCall<decltype(::cuMemFree_v2)> real_free("cuMemFree_v2");
/// Threads  any.
template <class Function>
class RealCall;
template <class Result, class... Arguments>
class RealCall<Result(Arguments...)> {
 public:
  using Pointer = Result (*)(Arguments...);

  constexpr explicit RealCall(const char* name) : name_(name) {}

  /// Null if the driver does not have it.
  Pointer get() {
    Pointer known = function_.load(std::memory_order_acquire);
    if (known == nullptr) {
      known = real<Pointer>(name_);
      function_.store(known, std::memory_order_release);
    }
    return known;
  }

  /// Calls it; answer_without_real() if there is none.
  Result operator()(Arguments... arguments) {
    const Pointer function = get();
    return function != nullptr ? function(arguments...) : static_cast<Result>(answer_without_real());
  }

 private:
  const char* name_;
  std::atomic<Pointer> function_ = nullptr;
};

}  // namespace gpumem::shim
