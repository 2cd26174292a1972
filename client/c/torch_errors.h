#pragma once
#include <string>
#include <typeinfo>

#include "client/c/last_error.h"

// Exceptions for PyTorch. The library has a C++ runtime of its own, which PyTorch's knows nothing of. So an
// exception is one of the process's libstdc++, made and thrown by it. A function that throws has nothing to
// clean up and no noexcept code in it, because those are handled by the library's own runtime.

namespace gpumem::c_abi {

/// The exception to throw, if any.
class Refusal {
 public:
  using Throw = void (*)(void* object, const std::type_info* type, void (*destroy)(void*));

  constexpr Refusal() = default;
  Refusal(Throw thrower, void* object, const std::type_info* type, void (*destroy)(void*))
      : throw_(thrower), object_(object), type_(type), destroy_(destroy) {}

  /// Throws it. Nothing to throw: returns.
  void raise() const {
    if (throw_ != nullptr) throw_(object_, type_, destroy_);
  }

 private:
  Throw throw_ = nullptr;
  void* object_ = nullptr;
  const std::type_info* type_ = nullptr;
  void (*destroy_)(void*) = nullptr;
};

/// The exception for the calling thread's last failure: PyTorch's c10::OutOfMemoryError if there is no
/// memory, else a std::runtime_error. `words` become part of the thread's last error. Where the process has
/// no libstdc++.so.6, they go to `failures`, and there is nothing to throw.
Refusal refuse_with(FailureLog& failures, gpumem_status status, const std::string& words) noexcept;

/// As above. Calls `what` for the message.
template <class What>
Refusal refuse(FailureLog& failures, gpumem_status status, What what) noexcept {
  std::string words;
  (void)guarded([&] { return words = what(), GPUMEM_OK; });
  return refuse_with(failures, status, words);
}

}  // namespace gpumem::c_abi
