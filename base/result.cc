#include "gpumem/result.h"

#include <cerrno>
#include <cstring>

namespace gpumem {

std::string_view code_name(Code code) {
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

std::string to_string(const Error& error) {
  return std::string(code_name(error.code)) + ": " + error.message;
}

static Code code_of_errno(int number) {
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

Error errno_error(int number, std::string_view what) {
  char buffer[128] = {};
  const char* words = strerror_r(number, buffer, sizeof buffer);
  return {code_of_errno(number), std::string(what) + ": " + words};
}

}  // namespace gpumem
