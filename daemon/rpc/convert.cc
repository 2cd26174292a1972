#include "daemon/rpc/convert.h"

#include <array>
#include <ctime>

namespace gpumem::rpc {
namespace {

std::uint64_t milliseconds(core::Duration duration) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

v1::Denial::Reason to_proto(core::Denial::Reason reason) {
  switch (reason) {
    case core::Denial::Reason::kSliceLimit: return v1::Denial::REASON_SLICE_LIMIT;
    case core::Denial::Reason::kTenantLimit: return v1::Denial::REASON_TENANT_LIMIT;
    case core::Denial::Reason::kPoolSize: return v1::Denial::REASON_POOL_SIZE;
    case core::Denial::Reason::kNoMemory: return v1::Denial::REASON_NO_MEMORY;
  }
  return v1::Denial::REASON_UNSPECIFIED;
}

}  // namespace

grpc::Status to_status(const Error& error) {
  return {static_cast<grpc::StatusCode>(error.code), error.message};
}

v1::Denial to_proto(const core::Denial& denial) {
  v1::Denial message;
  message.set_reason(to_proto(denial.reason));
  message.set_device(denial.device);
  message.set_tenant(denial.tenant);
  message.set_asked(denial.asked.count);
  message.set_tenant_limit(denial.quota.limit.count);
  message.set_tenant_guarantee(denial.quota.guarantee.count);
  message.set_tenant_charged(denial.charged.count);
  message.set_pool(denial.pool.count);
  message.set_free(denial.free.count);
  message.set_kept_for_others(denial.kept_for_others.count);
  message.set_charged_to_others(denial.charged_to_others.count);
  message.set_waiters_ahead(denial.waiters_ahead);
  message.set_waited_ms(milliseconds(denial.waited));
  message.set_wait_limit_ms(milliseconds(denial.wait_limit));
  for (const core::Denial::Holder& holder : denial.holders) {
    v1::Holder& one = *message.add_holders();
    one.set_session(holder.session.value);
    one.set_pid(holder.pid);
    one.set_command(holder.command);
    one.set_charged(holder.charged.count);
  }
  return message;
}

v1::DeviceStatus to_proto(const core::DeviceView& view) {
  v1::DeviceStatus status;
  status.set_uuid(view.policy.uuid);
  status.set_name(view.policy.name);
  status.set_total(view.policy.total.count);
  status.set_pool(view.policy.pool.count);
  status.set_free(view.free.count);
  status.set_offered(view.charges[core::Charge::kOffered].count);
  status.set_active(view.charges[core::Charge::kActive].count);
  status.set_returning(view.charges[core::Charge::kReturning].count);
  status.set_quarantined(view.charges[core::Charge::kQuarantined].count);
  status.set_warm(view.warm.count);
  status.set_waiting(view.waiting);
  status.set_missing(view.missing.count);
  status.set_guaranteed(view.guaranteed.count);
  return status;
}

v1::TenantUsage to_proto(const core::TenantView& view, const std::string& device_uuid) {
  v1::TenantUsage usage;
  usage.set_tenant(view.name);
  usage.set_device(device_uuid);
  usage.set_guarantee(view.quota.guarantee.count);
  usage.set_limit(view.quota.limit.count);
  usage.set_charged(view.charges.total().count);
  usage.set_quarantined(view.charges[core::Charge::kQuarantined].count);
  usage.set_sessions(view.sessions);
  usage.set_waiting(view.waiting);
  return usage;
}

v1::SessionInfo to_proto(const core::SessionView& view, core::TimePoint now) {
  v1::SessionInfo info;
  info.set_id(view.id.value);
  info.set_pid(view.peer.pid);
  info.set_uid(view.peer.uid);
  info.set_tenant(view.tenant);
  info.set_command(view.peer.command);
  info.set_label(view.label);
  info.set_since(to_date(view.since, now));
  info.set_ended(view.ended);
  return info;
}

void fill(v1::GrowResponse& response, const core::Grant& grant) {
  response.set_grant(grant.id.value);
  for (const core::OfferedLease& offered : grant.leases) {
    v1::Lease& lease = *response.add_leases();
    lease.set_id(offered.lease.value);
    lease.set_size(offered.extent.size.count);
  }
}

std::string to_date(core::TimePoint time, core::TimePoint now) {
  const auto then = std::chrono::system_clock::now() -
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(now - time);
  const std::time_t seconds = std::chrono::system_clock::to_time_t(then);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

}  // namespace gpumem::rpc
