#pragma once
#include <exception>
#include <new>
#include <string>

#include "gpumem.h"
#include "gpumem/result.h"

// How what goes wrong leaves the library: as a status, and as words that stay with the calling thread.

namespace gpumem::c_abi {

/// Keeps `message` as the calling thread's last error, and answers the status of `code`. Without host memory
/// for the words, it keeps others that say so.
gpumem_status fail(Code code, std::string message) noexcept;
inline gpumem_status fail(const Error& error) { return fail(error.code, error.message); }

/// As gpumem_last_error.
const char* last_error() noexcept;

/// What `function` answers; an exception becomes a failure.
template <class Function>
gpumem_status guarded(Function&& function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return fail(Code::kResourceExhausted, {});
  } catch (const std::exception& error) {
    return fail(Code::kInternal, error.what());
  } catch (...) {
    return fail(Code::kInternal, "an exception of an unknown kind");
  }
}

/// Says the calling thread's last error on standard error, the first time that `status` is said of
/// `function`. `said`  the function's own memory of what it has said.
class Complaints {
 public:
  constexpr explicit Complaints(const char* function) : function_(function) {}
  void say(gpumem_status status) noexcept;

 private:
  const char* function_;
  unsigned said_ = 0;  ///< by status; only touched atomically
};

}  // namespace gpumem::c_abi
