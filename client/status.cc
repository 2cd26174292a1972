#include "client/status.h"

#include <grpcpp/support/status.h>

#include "gpumem/v1/broker.pb.h"
#include "gpumem/v1/status.pb.h"

namespace gpumem::client {
namespace {

Denial::Reason reason_of(v1::Denial::Reason reason) {
  switch (reason) {
    case v1::Denial::REASON_SLICE_LIMIT: return Denial::Reason::kSliceLimit;
    case v1::Denial::REASON_TENANT_LIMIT: return Denial::Reason::kTenantLimit;
    case v1::Denial::REASON_POOL_SIZE: return Denial::Reason::kPoolSize;
    case v1::Denial::REASON_NO_MEMORY: return Denial::Reason::kNoMemory;
    case v1::Denial::REASON_DEBT: return Denial::Reason::kDebt;
    case v1::Denial::REASON_TURN: return Denial::Reason::kTurn;
    default: return Denial::Reason::kUnknown;
  }
}

std::vector<Denial::Holder> holders_of(const google::protobuf::RepeatedPtrField<v1::Holder>& messages) {
  std::vector<Denial::Holder> holders;
  for (const v1::Holder& holder : messages) {
    holders.push_back(
        {holder.session(), holder.pid(), holder.command(), {holder.charged()}, holder.tenant()});
  }
  return holders;
}

Denial::Soonest soonest_of(const v1::Soonest& message) {
  Denial::Soonest soonest{{}, message.why()};
  if (message.known()) soonest.within = std::chrono::milliseconds(message.within_ms());
  return soonest;
}

Error plain_error(const grpc::Status& status, std::string_view socket) {
  const std::string& words = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return {Code::kUnavailable, "the broker at " + std::string(socket) +
                                      " is gone; memory that is already mapped " +
                                      "stays usable (systemctl status gpumemd): " + words};
    case grpc::StatusCode::CANCELLED:  // not by this side, which reports its own cancelling earlier
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
    case Code::kAborted:
    case Code::kInternal:
    case Code::kUnavailable:
    case Code::kUnauthenticated: return code;
  }
  return Code::kInternal;
}

Error called_off() { return {Code::kCancelled, "called off by the caller"}; }

Denial to_denial(const v1::Denial& message) {
  Denial denial;
  denial.reason = reason_of(message.reason());
  denial.device = message.device();
  denial.tenant = message.tenant();
  denial.asked = {message.asked()};
  denial.asked_least = {message.asked_min() != 0 ? message.asked_min() : message.asked()};
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
  denial.limiting_tenant = message.limiting_tenant();
  denial.limiting_limit = {message.limiting_limit()};
  denial.limiting_charged = {message.limiting_charged()};
  denial.returning = {message.returning()};
  denial.asked_back = {message.asked_back()};
  denial.soonest = soonest_of(message.soonest());
  denial.holders = holders_of(message.holders());
  denial.other_tenants = holders_of(message.other_tenants());
  return denial;
}

std::optional<Denial> denial_in(std::string_view details) {
  v1::Status status;
  if (!status.ParseFromArray(details.data(), static_cast<int>(details.size()))) return std::nullopt;
  for (const google::protobuf::Any& detail : status.details()) {
    v1::Denial message;
    if (detail.UnpackTo(&message)) return to_denial(message);
  }
  return std::nullopt;
}

GrowError call_error(const grpc::Status& status, std::string_view socket) {
  Error error = plain_error(status, socket);
  if (auto denial = denial_in(status.error_details())) return {std::move(error), std::move(*denial)};
  return error;
}

}  // namespace gpumem::client
