#pragma once
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/thread_guards.h"
#include "gpumem.h"
#include "gpumem/denial.h"
#include "gpumem/result.h"

// Errors of the library: a status, and a message that stays with the calling thread.

namespace gpumem::c_abi {

/// Stores `message` as the calling thread's last error. Returns the status of `code`. If there is no host
/// memory for the message, it stores a fixed one that says so.
gpumem_status fail(Code code, std::string message) noexcept;
inline gpumem_status fail(const Error& error) { return fail(error.code, error.message); }
/// As above, and stores the denial.
gpumem_status fail(const GrowError& error);

/// As gpumem_last_error.
const char* last_error() noexcept;

/// The denial of the calling thread's last failure; null: it has none.
std::shared_ptr<const Denial> last_denial() noexcept;

/// The result of `function`, which cares for cancellations (pthread_cancel) itself. An exception becomes a
/// failure status.
template <class Function>
gpumem_status caught(Function&& function) noexcept {
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

/// As caught(). The thread is not cancelled meanwhile, which takes 10 ns: the hottest calls do without.
template <class Function>
gpumem_status guarded(Function&& function) noexcept {
  const NotCancelled whole;
  return caught(std::forward<Function>(function));
}

/// Prints the calling thread's last error on standard error, once for each `status` of `function`.
class FailureLog {
 public:
  constexpr explicit FailureLog(const char* function) : function_(function) {}
  void report(gpumem_status status) noexcept;

 private:
  const char* function_;
  unsigned reported_ = 0;  ///< by status; only touched atomically
};

}  // namespace gpumem::c_abi
