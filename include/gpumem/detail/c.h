#pragma once
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpumem.h"
#include "gpumem/bytes.h"
#include "gpumem/denial.h"
#include "gpumem/result.h"

// Between the C++ classes and the C functions that they call.

namespace gpumem::detail {

struct Free {
  void operator()(gpumem_session* handle) const noexcept { gpumem_session_free(handle); }
  void operator()(gpumem_slice* handle) const noexcept { gpumem_slice_free(handle); }
  void operator()(gpumem_allocator* handle) const noexcept { gpumem_allocator_free(handle); }
  void operator()(gpumem_import* handle) const noexcept { gpumem_import_free(handle); }
  void operator()(gpumem_canceller* handle) const noexcept { gpumem_canceller_free(handle); }
};
/// Owns a handle. Null: moved from.
template <class T>
using Handle = std::unique_ptr<T, Free>;

/// The C string of an optional text: null if it is empty.
inline const char* c_text(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }
inline std::string cpp_text(const char* text) { return text != nullptr ? text : ""; }

/// The calling thread's last failure, which was answered with `status`.
inline Error last_error(gpumem_status status) { return {static_cast<Code>(status), gpumem_last_error()}; }

inline Result<void> done(gpumem_status status) {
  if (status == GPUMEM_OK) return {};
  return last_error(status);
}
inline Result<Bytes> done(gpumem_status status, std::uint64_t bytes) {
  if (status == GPUMEM_OK) return Bytes{bytes};
  return last_error(status);
}

inline Error moved_from(const char* what) {
  return {Code::kFailedPrecondition, std::string("the ") + what + " has been moved from"};
}

inline std::chrono::steady_clock::time_point time_point(std::int64_t nanoseconds) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(nanoseconds));
}

/// Lists what `visit`, called with a visitor and its context, shows. An exception of `convert` ends the visit
/// and is thrown again behind it, because none may pass through C.
template <class Shown, class Item>
class Listing {
 public:
  explicit Listing(Item (*convert)(const Shown&)) : convert_(convert) {}

  static bool visitor(const Shown* shown, void* context) noexcept {
    return static_cast<Listing*>(context)->add(*shown);
  }
  std::vector<Item> take() {
#ifdef __cpp_exceptions
    if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
#endif
    return std::move(items_);
  }

 private:
  bool add(const Shown& shown) {
#ifdef __cpp_exceptions
    try {
      items_.push_back(convert_(shown));
      return true;
    } catch (...) {
      failed_ = std::current_exception();
      return false;
    }
#else
    items_.push_back(convert_(shown));
    return true;
#endif
  }

  Item (*const convert_)(const Shown&);
  std::vector<Item> items_;
  std::exception_ptr failed_;
};

inline Denial::Holder holder_of(const gpumem_holder& holder) {
  return {holder.session, holder.pid, holder.command, {holder.charged}, holder.tenant};
}

inline Denial::Reason reason_of(int number) {
  const bool known = number > GPUMEM_DENIED_UNKNOWN && number <= GPUMEM_DENIED_TURN;
  return known ? static_cast<Denial::Reason>(number) : Denial::Reason::kUnknown;
}

inline Denial denial_of(const gpumem_denial& from) {
  using std::chrono::milliseconds;
  Denial denial;
  denial.reason = reason_of(from.reason);
  denial.device = cpp_text(from.device);
  denial.tenant = cpp_text(from.tenant);
  denial.asked = {from.asked};
  denial.asked_least = {from.asked_least};
  denial.tenant_limit = {from.tenant_limit};
  denial.tenant_guarantee = {from.tenant_guarantee};
  denial.tenant_charged = {from.tenant_charged};
  denial.pool = {from.pool};
  denial.free = {from.free};
  denial.kept_for_others = {from.kept_for_others};
  denial.charged_to_others = {from.charged_to_others};
  denial.waiters_ahead = from.waiters_ahead;
  denial.waited = milliseconds(from.waited_ms);
  denial.wait_limit = milliseconds(from.wait_limit_ms);
  denial.limiting_tenant = cpp_text(from.limiting_tenant);
  denial.limiting_limit = {from.limiting_limit};
  denial.limiting_charged = {from.limiting_charged};
  denial.returning = {from.returning};
  denial.asked_back = {from.asked_back};
  if (from.soonest_ms >= 0) denial.soonest.within = milliseconds(from.soonest_ms);
  denial.soonest.why = cpp_text(from.soonest_why);
  return denial;
}

/// A holder, and whether it belongs to another tenant.
using AnyHolder = std::pair<Denial::Holder, bool>;
inline AnyHolder any_holder_of(const gpumem_holder& holder) {
  return {holder_of(holder), holder.is_other_tenant};
}

/// As last_error, with the broker's denial if there is one.
inline GrowError last_grow_error(gpumem_status status) {
  Error error = last_error(status);
  gpumem_denial known = GPUMEM_DENIAL_INIT;
  if (!gpumem_last_denial(&known)) return error;
  Denial denial = denial_of(known);
  Listing<gpumem_holder, AnyHolder> holders(any_holder_of);
  gpumem_last_denial_holders(holders.visitor, &holders);
  for (auto& [holder, is_other] : holders.take())
    (is_other ? denial.other_tenants : denial.holders).push_back(std::move(holder));
  return {std::move(error), std::move(denial)};
}

inline Result<void, GrowError> done_growing(gpumem_status status) {
  if (status == GPUMEM_OK) return {};
  return last_grow_error(status);
}

}  // namespace gpumem::detail
