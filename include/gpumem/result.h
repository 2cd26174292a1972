#pragma once
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace gpumem {

/// Why an operation failed. A subset of gRPC's codes, with gRPC's numbers.
enum class Code : int {
  kCancelled = 1,         ///< called off, or ended by a signal: SIGINT, SIGTERM, SIGHUP, SIGQUIT
  kInvalidArgument = 3,   ///< the caller's own input is wrong; repeating it will fail again
  kDeadlineExceeded = 4,  ///< waited as long as was allowed
  kNotFound = 5,          ///< no such device, slice, session, file
  kAlreadyExists = 6,
  kPermissionDenied = 7,    ///< the caller is known and may not
  kResourceExhausted = 8,   ///< a limit stands against it
  kFailedPrecondition = 9,  ///< not in this state (closed, forked, unsupported driver)
  kAborted = 10,            ///< somebody else was first: look again and repeat
  kInternal = 13,           ///< a bug or a broken invariant
  kUnavailable = 14,        ///< the peer is not there; trying later may succeed
  kUnauthenticated = 16,    ///< the session is unknown
};

/// The upper-case name of `code`, as gRPC spells it.
constexpr std::string_view code_name(Code code) {
  switch (code) {
    case Code::kCancelled: return "CANCELLED";
    case Code::kInvalidArgument: return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case Code::kNotFound: return "NOT_FOUND";
    case Code::kAlreadyExists: return "ALREADY_EXISTS";
    case Code::kPermissionDenied: return "PERMISSION_DENIED";
    case Code::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition: return "FAILED_PRECONDITION";
    case Code::kAborted: return "ABORTED";
    case Code::kInternal: return "INTERNAL";
    case Code::kUnavailable: return "UNAVAILABLE";
    case Code::kUnauthenticated: return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

/// A failure, in words that say what to do.
struct Error {
  Code code = Code::kInternal;
  std::string message;

  /// This error with `context` and a colon before its message.
  [[nodiscard]] Error in(std::string_view context) const {
    return {code, std::string(context) + ": " + message};
  }
};

/// `CODE_NAME: message`.
inline std::string to_string(const Error& error) {
  return std::string(code_name(error.code)) + ": " + error.message;
}

namespace detail {

constexpr Code code_of_errno(int number) {
  switch (number) {
    case ENOENT:
    case ENODEV: return Code::kNotFound;
    case EACCES:
    case EPERM: return Code::kPermissionDenied;
    case EEXIST:
    case EADDRINUSE: return Code::kAlreadyExists;
    case EINVAL:
    case ENAMETOOLONG: return Code::kInvalidArgument;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case ENOSPC: return Code::kResourceExhausted;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE: return Code::kUnavailable;
    case EAGAIN:
    case ETIMEDOUT: return Code::kDeadlineExceeded;
    default: return Code::kInternal;
  }
}

// strerror_r answers the text (GNU), or a status and fills the buffer (POSIX).
inline const char* text_of(const char* text, const char*) { return text; }
inline const char* text_of(int status, const char* buffer) { return status == 0 ? buffer : "unknown error"; }

}  // namespace detail

/// Makes an Error from errno-style `number`. The message is `what: strerror (errno)`, the code follows from
/// the number.
inline Error errno_error(int number, std::string_view what) {
  char buffer[128] = {};
  const char* words = detail::text_of(::strerror_r(number, buffer, sizeof buffer), buffer);
  return {detail::code_of_errno(number), std::string(what) + ": " + words};
}

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
