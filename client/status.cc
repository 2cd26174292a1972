#include "client/status.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "gpumem/v1/broker.pb.h"
#include "proto/lane.h"

namespace gpumem::client {
namespace {

Denial::Reason reason_of(v1::Denial::Reason reason) {
  switch (reason) {
    case v1::Denial::REASON_SLICE_LIMIT: return Denial::Reason::kSliceLimit;
    case v1::Denial::REASON_TENANT_LIMIT: return Denial::Reason::kTenantLimit;
    case v1::Denial::REASON_POOL_SIZE: return Denial::Reason::kPoolSize;
    case v1::Denial::REASON_NO_MEMORY: return Denial::Reason::kNoMemory;
    default: return Denial::Reason::kUnknown;
  }
}

std::optional<Denial> denial_of(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kDenialMetadataKey);
  if (found == trailers.end()) return std::nullopt;
  return parse_denial({found->second.data(), found->second.size()});
}

Error plain_error(const grpc::Status& status, std::string_view socket) {
  const std::string& words = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return {Code::kUnavailable, "the broker at " + std::string(socket) +
                                      " is gone; memory that is already mapped " +
                                      "stays usable (systemctl status gpumemd): " + words};
    case grpc::StatusCode::CANCELLED:  // not by this library, which cancels nothing
      return {Code::kUnavailable,
              "the broker at " + std::string(socket) +
                  " broke the call off: it is stopping, or has ended this session: " + words};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Code::kInternal, "the broker does not know this call; it is of another version: " + words};
    default: return {code_of(status.error_code()), words.empty() ? "the broker gives no reason" : words};
  }
}

}  // namespace

Code code_of(int number) {
  const auto code = static_cast<Code>(number);
  switch (code) {
    case Code::kCancelled:
    case Code::kInvalidArgument:
    case Code::kDeadlineExceeded:
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kPermissionDenied:
    case Code::kResourceExhausted:
    case Code::kFailedPrecondition:
    case Code::kInternal:
    case Code::kUnavailable:
    case Code::kUnauthenticated: return code;
  }
  return Code::kInternal;
}

Denial to_denial(const v1::Denial& message) {
  Denial denial;
  denial.reason = reason_of(message.reason());
  denial.device = message.device();
  denial.tenant = message.tenant();
  denial.asked = {message.asked()};
  denial.tenant_limit = {message.tenant_limit()};
  denial.tenant_guarantee = {message.tenant_guarantee()};
  denial.tenant_charged = {message.tenant_charged()};
  denial.pool = {message.pool()};
  denial.free = {message.free()};
  denial.kept_for_others = {message.kept_for_others()};
  denial.charged_to_others = {message.charged_to_others()};
  denial.waiters_ahead = message.waiters_ahead();
  denial.waited = std::chrono::milliseconds(message.waited_ms());
  denial.wait_limit = std::chrono::milliseconds(message.wait_limit_ms());
  for (const v1::Holder& holder : message.holders()) {
    denial.holders.push_back({holder.session(), holder.pid(), holder.command(), {holder.charged()}});
  }
  return denial;
}

std::optional<Denial> parse_denial(std::string_view bytes) {
  v1::Denial message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  return to_denial(message);
}

GrowError call_error(const grpc::Status& status, const grpc::ClientContext& context,
                     std::string_view socket) {
  Error error = plain_error(status, socket);
  if (auto denial = denial_of(context)) return {std::move(error), std::move(*denial)};
  return error;
}

}  // namespace gpumem::client
