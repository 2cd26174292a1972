#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace gpumem {

/// Why an operation failed. A subset of gRPC's codes, with gRPC's numbers.
enum class Code : int {
  kCancelled = 1,
  kInvalidArgument = 3,   ///< the caller's own input is wrong; repeating it will fail again
  kDeadlineExceeded = 4,  ///< waited as long as was allowed
  kNotFound = 5,          ///< no such device, slice, session, file
  kAlreadyExists = 6,
  kPermissionDenied = 7,    ///< the caller is known and may not
  kResourceExhausted = 8,   ///< a limit stands against it
  kFailedPrecondition = 9,  ///< not in this state (closed, forked, unsupported driver)
  kAborted = 10,            ///< somebody else was first: look again and repeat
  kInternal = 13,           ///< a bug or a broken invariant
  kUnavailable = 14,        ///< the other side is not there; trying later may succeed
  kUnauthenticated = 16,    ///< the session is unknown
};

/// The upper-case name of `code`, as gRPC spells it.
std::string_view code_name(Code code);

/// What went wrong, in words that say what to do.
struct Error {
  Code code = Code::kInternal;
  std::string message;

  /// The same error with `context` and a colon put before its message.
  [[nodiscard]] Error in(std::string_view context) const {
    return {code, std::string(context) + ": " + message};
  }
};

/// `CODE_NAME: message`.
std::string to_string(const Error& error);

/// Makes an Error from errno-style `number`: `what: strerror (errno)`; the code follows from the number.
Error errno_error(int number, std::string_view what);

/// Either a value or an error. Members are named as in std::expected.
/// Reading the value of an error, or the error of a value, aborts.
template <class T, class E = Error>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  using error_type = E;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(*-explicit-*)
  Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(*-explicit-*)

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& value() & { return *get_or_abort<0>(&state_); }
  const T& value() const& { return *get_or_abort<0>(&state_); }
  T&& value() && { return std::move(*get_or_abort<0>(&state_)); }
  E& error() & { return *get_or_abort<1>(&state_); }
  const E& error() const& { return *get_or_abort<1>(&state_); }
  E&& error() && { return std::move(*get_or_abort<1>(&state_)); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  T value_or(T other) && { return has_value() ? std::move(*this).value() : std::move(other); }

 private:
  template <std::size_t I, class Variant>
  static auto get_or_abort(Variant* variant) {
    auto* found = std::get_if<I>(variant);
    if (found == nullptr) __builtin_trap();
    return found;
  }

  std::variant<T, E> state_;
};

/// Success without a value, or an error.
template <class E>
class [[nodiscard]] Result<void, E> {
 public:
  using value_type = void;
  using error_type = E;

  Result() = default;
  Result(E error) : error_(std::move(error)) {}  // NOLINT(*-explicit-*)

  bool has_value() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  E& error() & { return check(), *error_; }
  const E& error() const& { return check(), *error_; }
  E&& error() && { return check(), std::move(*error_); }

 private:
  void check() const {
    if (!error_) __builtin_trap();
  }
  std::optional<E> error_;
};

}  // namespace gpumem
