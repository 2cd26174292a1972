#include "client/process/status.h"

#include <algorithm>
#include <string>

namespace gpumem::client {
namespace {

constexpr std::uint64_t kUnimplemented = 12;  // gRPC's number

Denial::Reason reason_of(std::uint64_t number) {
  switch (number) {
    case 1: return Denial::Reason::kSliceLimit;
    case 2: return Denial::Reason::kTenantLimit;
    case 3: return Denial::Reason::kPoolSize;
    case 4: return Denial::Reason::kNoMemory;
    case 5: return Denial::Reason::kDebt;
    case 6: return Denial::Reason::kTurn;
    default: return Denial::Reason::kUnknown;
  }
}

std::chrono::milliseconds milliseconds_of(std::uint64_t count) {
  constexpr auto kMost =
      static_cast<std::uint64_t>(std::chrono::milliseconds(std::chrono::hours(24 * 365)).count());
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(count, kMost)));
}

Denial::Holder holder_of(const lane::Holder& holder) {
  return {holder.session,
          holder.pid,
          std::string(holder.command.view()),
          {holder.charged},
          std::string(holder.tenant.view())};
}

Denial::Soonest soonest_of(const lane::Denial& from) {
  Denial::Soonest soonest{{}, std::string(from.soonest_why.view())};
  if (from.soonest_known != 0) soonest.within = milliseconds_of(from.soonest);
  return soonest;
}

Denial to_denial(const lane::Failed& failed) {
  const lane::Denial& from = failed.denial;
  Denial denial;
  denial.reason = reason_of(from.reason);
  denial.device = from.device.view();
  denial.tenant = from.tenant.view();
  denial.asked = {from.asked};
  denial.asked_least = {from.asked_min != 0 ? from.asked_min : from.asked};
  denial.tenant_limit = {from.tenant_limit};
  denial.tenant_guarantee = {from.tenant_guarantee};
  denial.tenant_charged = {from.tenant_charged};
  denial.pool = {from.pool};
  denial.free = {from.free};
  denial.kept_for_others = {from.kept_for_others};
  denial.charged_to_others = {from.charged_to_others};
  denial.waiters_ahead = from.waiters_ahead;
  denial.waited = milliseconds_of(from.waited);
  denial.wait_limit = milliseconds_of(from.wait_limit);
  denial.limiting_tenant = from.limiting_tenant.view();
  denial.limiting_limit = {from.limiting_limit};
  denial.limiting_charged = {from.limiting_charged};
  denial.returning = {from.returning};
  denial.asked_back = {from.asked_back};
  denial.soonest = soonest_of(from);
  for (std::uint64_t i = 0; i < failed.count; ++i)
    (i < failed.own ? denial.holders : denial.other_tenants).push_back(holder_of(failed.holders[i]));
  return denial;
}

Error plain_error(const lane::Failed& failed) {
  std::string words(failed.message.view());
  if (words.empty()) words = "the broker gives no reason";
  if (failed.code == kUnimplemented)
    return {Code::kInternal, "the broker does not know this call; it is of another version: " + words};
  const Code code = code_of(failed.code);
  if (code != Code::kCancelled) return {code, words};
  return {Code::kUnavailable,
          "the broker broke the call off: it is stopping, or has ended this session: " + words};
}

}  // namespace

Code code_of(std::uint64_t number) {
  const auto code = static_cast<Code>(static_cast<int>(std::min<std::uint64_t>(number, 1000)));
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

Error protocol_error(std::string_view what) {
  return {Code::kInternal, "the broker broke the lane's protocol: " + std::string(what)};
}

GrowError error_of(const lane::Failed& failed, bool off) {
  if (off && failed.code == static_cast<std::uint64_t>(Code::kCancelled)) return called_off();
  Error error = plain_error(failed);
  if (failed.denial.reason != 0) return {std::move(error), to_denial(failed)};
  return error;
}

}  // namespace gpumem::client
