#include "daemon/rpc/convert.h"

#include <algorithm>
#include <string>

#include "base/text/time_format.h"
#include "daemon/core/words/events.h"

namespace gpumem::rpc {
namespace {

v1::Holder holder_of(const core::Denial::Holder& holder) {
  v1::Holder message;
  message.set_session(holder.session.value);
  message.set_pid(holder.pid);
  message.set_command(holder.command);
  message.set_charged(holder.charged.count);
  message.set_tenant(holder.tenant);
  return message;
}

core::Duration to_duration(std::uint64_t milliseconds) {
  // More than any wait, and few enough to be counted in nanoseconds.
  constexpr std::uint64_t kMost = 366ULL * 24 * 3600 * 1000;
  return std::chrono::milliseconds(std::min(milliseconds, kMost));
}

template <class Message>
std::vector<LeaseId> leases_of(const Message& message) {
  std::vector<LeaseId> leases;
  leases.reserve(static_cast<std::size_t>(message.leases_size()));
  for (const std::uint64_t lease : message.leases()) leases.push_back(LeaseId{lease});
  return leases;
}

}  // namespace

core::Grow to_request(const v1::GrowRequest& message) {
  core::Grow request{.parts = {}, .wait = to_duration(message.wait_ms())};
  for (const v1::GrowPart& part : message.parts())
    request.parts.push_back(
        {SliceId{part.slice()}, Bytes{part.bytes()}, Bytes{part.min_bytes()}, Bytes{part.largest_extent()}});
  return request;
}

core::DeclareCharge to_request(const v1::ChargeRequest& message) {
  return {message.device(), {message.bytes()}, message.bounded()};
}

core::BeginJob to_request(const v1::BeginJobRequest& message) {
  return {message.label(),
          {message.limit()},
          message.limit_points(),
          {message.host_limit()},
          message.host_limit_points()};
}

core::ReserveForJob to_request(const v1::ReserveForJobRequest& message) {
  return {message.device(), {message.bytes()}, to_duration(message.wait_ms())};
}

core::Return to_request(const v1::ReturnRequest& message) {
  return {SliceId{message.slice()}, leases_of(message)};
}

core::ExportHandle to_request(const v1::ExportHandleRequest& message) {
  return {.slice = SliceId{message.slice()},
          .leases = leases_of(message),
          .offset = {message.offset()},
          .bytes = {message.bytes()},
          .life = to_duration(message.life_ms()),
          .uses = message.uses()};
}

Result<core::Publish> to_request(const v1::PublishRequest& message) {
  core::Publish request{.name = message.name(),
                        .slice = SliceId{message.slice()},
                        .leases = leases_of(message),
                        .offset = {message.offset()},
                        .bytes = {message.bytes()},
                        .layout = {message.layout()},
                        .sharing = static_cast<core::Sharing>(message.sharing()),
                        .readers = {message.readers().begin(), message.readers().end()},
                        .life = to_duration(message.life_ms()),
                        .keep = message.keep(),
                        .linger = to_duration(message.linger_ms()),
                        .sealed = message.sealed()};
  const std::string& digest = message.digest();
  if (!digest.empty() && digest.size() != request.digest.size()) {
    return Error{Code::kInvalidArgument, "a digest has " + std::to_string(request.digest.size()) +
                                             " bytes, not " + std::to_string(digest.size())};
  }
  std::ranges::copy(digest, request.digest.begin());
  return request;
}

Result<core::HandleBytes> to_handle(std::string_view bytes) {
  core::HandleBytes handle{};
  if (bytes.size() != handle.size()) {
    return Error{Code::kInvalidArgument, "a handle has " + std::to_string(handle.size()) + " bytes, not " +
                                             std::to_string(bytes.size())};
  }
  std::ranges::copy(bytes, handle.begin());
  return handle;
}

grpc::Status to_status(const Error& error) {
  return {static_cast<grpc::StatusCode>(error.code), error.message};
}

v1::Denial to_proto(const core::Denial& denial) {
  v1::Denial message;
  message.set_reason(static_cast<v1::Denial::Reason>(denial.reason));
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
  message.set_waited_ms(core::to_milliseconds(denial.waited));
  message.set_wait_limit_ms(core::to_milliseconds(denial.wait_limit));
  message.set_asked_min(denial.asked_min.count);
  message.set_limiting_tenant(denial.limiting_tenant);
  message.set_limit(static_cast<v1::Denial::Limit>(denial.limit));
  message.set_limiting_limit(denial.limiting_limit.count);
  message.set_limiting_charged(denial.limiting_charged.count);
  message.set_limiting_kept(denial.limiting_kept.count);
  message.set_limiting_contexts(denial.limiting_contexts.count);
  message.set_returning(denial.returning.count);
  message.set_asked_back(denial.asked_back.count);
  message.set_missing(denial.missing.count);
  message.set_contexts(denial.contexts.count);
  message.set_context(denial.context.count);
  message.set_request(denial.request.value);
  message.set_session(denial.session.value);
  message.mutable_soonest()->set_known(denial.soonest.within.has_value());
  message.mutable_soonest()->set_within_ms(
      core::to_milliseconds(denial.soonest.within.value_or(core::Duration{})));
  message.mutable_soonest()->set_why(denial.soonest.why);
  for (const core::Denial::Holder& holder : denial.holders) *message.add_holders() = holder_of(holder);
  for (const core::Denial::Holder& holder : denial.other_tenants)
    *message.add_other_tenants() = holder_of(holder);
  return message;
}

v1::DeviceStatus to_proto(const core::DeviceView& view, core::TimePoint now) {
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
  status.set_reserved(view.charges[core::Charge::kReserved].count);
  status.set_warm(view.warm.count);
  status.set_waiting(view.waiting);
  status.set_missing(view.missing.count);
  status.set_guaranteed(view.guaranteed.count);
  status.set_lend_guarantees(view.policy.reclaim.lend_guarantees);
  status.set_asked_back(view.asked_back.count);
  status.set_outside(view.outside.count);
  status.set_unexplained(view.unexplained.count);
  status.set_contexts(view.contexts.count);
  status.set_contexts_refused(view.contexts_refused);
  status.set_elastic(view.policy.is_elastic());
  status.set_created(view.created.count);
  if (view.context_refused_at) status.set_context_refused_at(to_date(*view.context_refused_at, now));
  return status;
}

v1::Account to_proto(const core::UsageView& view, const std::vector<std::string>& devices,
                     core::TimePoint now) {
  const auto used = [&](core::Use use) { return view.usage[static_cast<std::size_t>(use)].byte_seconds(); };
  v1::Account account;
  account.set_tenant(view.tenant);
  account.set_device(devices[view.device]);
  account.set_since(to_date(view.began, now));
  account.set_lent(used(core::Use::kLent));
  account.set_returning(used(core::Use::kReturning));
  account.set_reserved(used(core::Use::kReserved));
  account.set_outside(used(core::Use::kOutside));
  account.set_kept(used(core::Use::kKept));
  account.set_waiting(used(core::Use::kWaiting));
  return account;
}

v1::TenantUsage to_proto(const core::TenantView& view, const std::string& device_uuid) {
  v1::TenantUsage usage;
  usage.set_tenant(view.name);
  usage.set_device(device_uuid);
  usage.set_guarantee(view.quota.guarantee.count);
  usage.set_limit(view.quota.limit.count);
  usage.set_charged((view.charges.total() + view.outside).count);
  usage.set_quarantined(view.charges[core::Charge::kQuarantined].count);
  usage.set_reserved(view.charges[core::Charge::kReserved].count);
  usage.set_sessions(view.sessions);
  usage.set_waiting(view.waiting);
  usage.set_parent(view.parent);
  usage.set_weight(view.quota.weight);
  usage.set_priority(view.quota.priority);
  usage.set_burst(view.burst.count);
  usage.set_debt(view.debt.count);
  usage.set_outside(view.outside.count);
  return usage;
}

v1::SessionInfo to_proto(const core::SessionView& view, const std::vector<std::string>& devices,
                         core::TimePoint now) {
  v1::SessionInfo info;
  info.set_id(view.id.value);
  info.set_pid(view.peer.pid);
  info.set_uid(view.peer.uid);
  info.set_tenant(view.tenant);
  info.set_command(view.peer.command);
  info.set_label(view.label);
  info.set_since(to_date(view.since, now));
  info.set_ended(view.ended);
  info.set_detached(view.detached);
  info.set_job(view.job.value);
  info.set_cannot_be_signalled(!view.detached && !view.peer.can_be_ended);
  for (const core::SharedView& shared : view.shared) {
    v1::SharedMemory& one = *info.add_shared();
    one.set_device(devices.at(shared.device));
    one.set_charged(shared.charged.count);
    one.set_imported(shared.imported.count);
    one.set_fabric(shared.fabric.count);
    one.set_declared(shared.declared.count);
  }
  return info;
}

v1::JobInfo to_proto(const core::JobView& view, const std::vector<std::string>& devices,
                     core::TimePoint now) {
  v1::JobInfo info;
  info.set_id(view.id.value);
  info.set_tenant(view.tenant);
  info.set_label(view.label);
  info.set_owner(view.owner.value);
  info.set_since(to_date(view.since, now));
  info.set_sessions(view.sessions);
  info.set_waited_ms(core::to_milliseconds(view.waited_until(now)));
  info.set_denied(view.denied);
  for (std::size_t i = 0; i < view.devices.size(); ++i) {
    v1::JobUsage& one = *info.add_devices();
    one.set_device(devices.at(i));
    one.set_limit(view.devices[i].limit.count);
    one.set_charged(view.devices[i].charged.count);
    one.set_reserved(view.devices[i].reserved.count);
    one.set_peak(view.devices[i].peak.count);
    one.set_waiting(view.devices[i].waiting);
    one.set_quarantined(view.devices[i].quarantined.count);
    one.set_outside(view.devices[i].outside.count);
  }
  return info;
}

v1::SliceInfo to_proto(const core::SliceView& slice, const std::vector<std::string>& devices) {
  v1::SliceInfo info;
  info.set_id(slice.id.value);
  info.set_device(devices.at(slice.device));
  info.set_label(slice.label);
  info.set_limit(slice.limit.count);
  info.set_charged(slice.charged.count);
  info.set_returning(slice.returning.count);
  info.set_waiting(slice.waiting.count);
  return info;
}

v1::RegionInfo to_proto(const core::RegionView& view, const std::vector<std::string>& devices,
                        core::TimePoint now) {
  const core::Region& region = view.region;
  v1::RegionInfo info;
  info.set_owner(view.owner);
  info.set_name(region.name);
  info.set_version(region.id.value);
  info.set_device(devices.at(region.device));
  info.set_bytes(region.bytes.count);
  info.set_layout(region.layout.count);
  info.set_digest(region.digest.data(), region.digest.size());
  info.set_sharing(static_cast<v1::Sharing>(region.sharing));
  for (const std::string& reader : region.readers) info.add_readers(reader);
  for (const core::RegionView::Charged& charged : view.charged) {
    v1::RegionCharge& one = *info.add_charged();
    one.set_session(charged.session.value);
    one.set_pid(charged.pid);
    one.set_command(charged.command);
    one.set_bytes(charged.bytes.count);
  }
  for (const core::RegionView::Mapping& mapping : view.mappings) {
    v1::RegionMapping& one = *info.add_mappings();
    one.set_session(mapping.session.value);
    one.set_pid(mapping.pid);
    one.set_tenant(mapping.tenant);
    one.set_command(mapping.command);
    one.set_count(mapping.count);
  }
  info.set_since(to_date(region.since, now));
  if (region.ends() != core::TimePoint::max()) info.set_expires(to_date(region.ends(), now));
  info.set_kept(region.kept);
  info.set_sealed(region.sealed);
  info.set_memory(region.leases.front().value);
  info.set_offset(region.offset.count);
  if (region.linger != core::Duration::max()) info.set_linger_ms(core::to_milliseconds(region.linger));
  if (region.left != core::TimePoint::max()) info.set_left(to_date(region.left, now));
  return info;
}

void fill(v1::OpenSliceResponse& response, const core::SliceOpened& opened) {
  response.set_slice(opened.slice.value);
  response.set_limit(opened.limit.count);
  response.set_granularity(opened.granularity.count);
}

void fill(v1::ExplainResponse& response, const core::Explanation& explanation,
          const std::vector<std::string>& devices, core::TimePoint now) {
  response.set_tenant(explanation.tenant);
  response.set_requests(explanation.requests);
  response.set_newcomer(explanation.is_newcomer);
  for (const core::Standing& standing : explanation.devices)
    *response.add_devices() = to_proto(standing, devices, now);
  for (const core::Denial& waiting : explanation.waiting) *response.add_waiting() = to_proto(waiting);
}

void fill(v1::GrowResponse& response, const core::Grant& grant) {
  for (const core::OfferedLease& offered : grant.leases) {
    v1::Lease& lease = *response.add_leases();
    lease.set_id(offered.lease.value);
    lease.set_size(offered.extent.size.count);
    lease.set_slice(offered.slice.value);
  }
}

v1::Standing to_proto(const core::Standing& standing, const std::vector<std::string>& devices,
                      core::TimePoint now) {
  v1::Standing message;
  message.set_device(devices.at(standing.device));
  message.set_guarantee(standing.quota.guarantee.count);
  message.set_limit(standing.quota.limit.count);
  message.set_weight(standing.quota.weight);
  message.set_priority(standing.quota.priority);
  message.set_charged(standing.charged.count);
  message.set_declared(standing.declared.count);
  message.set_overhead(standing.overhead.count);
  message.set_available(standing.available.count);
  message.set_waiting(standing.waiting);
  message.set_burst(standing.burst.count);
  message.set_debt(standing.debt.count);
  message.set_asked_back(standing.asked_back.count);
  message.set_regions(standing.regions.count);
  message.set_region_bytes(standing.regions.bytes.count);
  message.set_kept_bytes(standing.regions.kept.count);
  message.set_past_broker(standing.past_broker.count);
  if (standing.asked_back_until)
    message.set_asked_back_within_ms(core::to_milliseconds(*standing.asked_back_until - now));
  return message;
}

v1::Event to_proto(const core::LoggedEvent& logged, const std::vector<std::string>& devices) {
  const core::Event& event = logged.event;
  v1::Event message;
  message.set_sequence(logged.sequence);
  message.set_time(to_rfc3339(logged.time, Precision::kMicroseconds));
  message.set_kind(std::string(core::name_of(event.kind)));
  message.set_tenant(event.tenant);
  message.set_session(event.session.value);
  if (event.device) message.set_device(devices.at(*event.device));
  message.set_bytes(event.bytes.count);
  message.set_request(event.request.value);
  message.set_waited_ms(core::to_milliseconds(event.waited));
  if (event.deadline != core::TimePoint{})
    message.set_within_ms(core::to_milliseconds(event.deadline - event.at));
  message.set_pid(event.pid);
  message.set_words(event.words);
  message.set_job(event.job.value);
  if (event.uid) message.set_uid(*event.uid);
  if (event.closing) {
    v1::Closing& closing = *message.mutable_closing();
    closing.set_lasted_ms(core::to_milliseconds(event.closing->lasted));
    closing.set_name(event.closing->name);
    closing.set_charged(event.closing->charged);
    closing.set_peak(event.closing->peak.count);
    closing.set_denied(event.closing->denied);
  }
  return message;
}

std::string to_date(core::TimePoint time, core::TimePoint now) {
  const auto ago = std::chrono::duration_cast<core::WallTime::duration>(now - time);
  return to_rfc3339(std::chrono::system_clock::now() - ago, Precision::kSeconds);
}

}  // namespace gpumem::rpc
