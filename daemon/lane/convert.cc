#include "daemon/lane/convert.h"

#include <algorithm>
#include <limits>

namespace gpumem::lane {
namespace {

core::Duration to_duration(std::uint64_t nanoseconds) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(nanoseconds, kMost)));
}

Holder holder_of(const core::Denial::Holder& holder) {
  Holder body{};
  body.session = holder.session.value;
  body.pid = holder.pid;
  body.charged = holder.charged.count;
  body.command = decltype(body.command)::of(holder.command);
  body.tenant = decltype(body.tenant)::of(holder.tenant);
  return body;
}

Denial denial_of(const core::Denial& denial) {
  Denial body{};
  body.reason = static_cast<std::uint64_t>(denial.reason);
  body.asked = denial.asked.count;
  body.asked_min = denial.asked_min.count;
  body.tenant_limit = denial.quota.limit.count;
  body.tenant_guarantee = denial.quota.guarantee.count;
  body.tenant_charged = denial.charged.count;
  body.pool = denial.pool.count;
  body.free = denial.free.count;
  body.kept_for_others = denial.kept_for_others.count;
  body.charged_to_others = denial.charged_to_others.count;
  body.waiters_ahead = denial.waiters_ahead;
  body.waited = core::to_milliseconds(denial.waited);
  body.wait_limit = core::to_milliseconds(denial.wait_limit);
  body.limiting_limit = denial.limiting_limit.count;
  body.limiting_charged = denial.limiting_charged.count;
  body.returning = denial.returning.count;
  body.asked_back = denial.asked_back.count;
  body.soonest_known = denial.soonest.within ? 1 : 0;
  body.soonest = core::to_milliseconds(denial.soonest.within.value_or(core::Duration{}));
  body.device = decltype(body.device)::of(denial.device);
  body.tenant = decltype(body.tenant)::of(denial.tenant);
  body.limiting_tenant = decltype(body.limiting_tenant)::of(denial.limiting_tenant);
  body.soonest_why = decltype(body.soonest_why)::of(denial.soonest.why);
  return body;
}

template <class Body>
std::vector<LeaseId> leases_of(const Body& body) {
  std::vector<LeaseId> leases;
  leases.reserve(body.count);
  for (std::size_t i = 0; i < body.count; ++i) leases.push_back(LeaseId{body.leases[i]});
  return leases;
}

std::vector<std::string> readers_of(const Publish& body) {
  static_assert(core::Regions::kMostReaders <= std::tuple_size_v<decltype(body.readers)>);
  std::vector<std::string> readers;
  for (const auto& reader : body.readers)
    if (!reader.view().empty()) readers.emplace_back(reader.view());
  return readers;
}

}  // namespace

core::Grow to_request(const Grow& body) {
  static_assert(kOneExtent == core::kOneExtent.count);
  core::Grow request{
      .parts = {}, .wait = to_duration(body.wait), .is_probe = (body.flags & Grow::kProbe) != 0};
  for (std::size_t i = 0; i < body.count; ++i) {
    const GrowPart& part = body.parts[i];
    request.parts.push_back({SliceId{part.slice}, {part.bytes}, {part.min_bytes}, {part.largest_extent}});
  }
  return request;
}

core::BeginJob to_request(const BeginJob& body) {
  return {std::string(body.label.view()),
          {body.limit},
          body.limit_points,
          {body.host_limit},
          body.host_limit_points};
}

core::ReserveForJob to_request(const ReserveForJob& body, std::string device) {
  return {std::move(device), {body.bytes}, to_duration(body.wait)};
}

core::AnnounceContext to_request(const AnnounceContext& body, std::string device) {
  return {std::move(device), to_duration(body.wait)};
}

core::Return to_request(const Return& body) { return {SliceId{body.slice}, leases_of(body)}; }

core::ExportHandle to_request(const ExportHandle& body) {
  return {.slice = SliceId{body.slice},
          .leases = leases_of(body),
          .offset = {body.offset},
          .bytes = {body.bytes},
          .life = to_duration(body.life),
          .uses = body.uses};
}

Result<core::Publish> to_request(const Publish& body, std::uint64_t number) {
  if (body.keep > 1) return Error{Code::kInvalidArgument, "a region is kept (1) or not (0)"};
  if (body.sealed > 1) return Error{Code::kInvalidArgument, "a region is sealed (1) or not (0)"};
  return core::Publish{.name = std::string(body.name.view()),
                       .slice = SliceId{body.slice},
                       .leases = leases_of(body),
                       .offset = {body.offset},
                       .bytes = {body.bytes},
                       .layout = {body.layout},
                       .digest = body.digest,
                       .sharing = static_cast<core::Sharing>(body.sharing),
                       .readers = readers_of(body),
                       .life = to_duration(body.life),
                       .keep = body.keep == 1,
                       .linger = to_duration(body.linger),
                       .sealed = body.sealed == 1,
                       .number = number};
}

core::MapRegion to_request(const MapRegion& body, std::string device) {
  return {.owner = std::string(body.owner.view()),
          .name = std::string(body.name.view()),
          .version = body.version,
          .how = static_cast<core::MapAs>(body.as),
          .device = std::move(device),
          .newer_than = body.newer_than,
          .wait = to_duration(body.wait)};
}

core::MapOrReserve to_request(const MapOrReserve& body, std::uint64_t number) {
  return {std::string(body.name.view()), to_duration(body.life), to_duration(body.wait), number};
}

core::RemoveRegion to_request(const RemoveRegion& body, std::uint64_t number) {
  return {std::string(body.name.view()), body.version, number};
}

Failed to_body(const core::GrowFailure& failure) {
  Failed body = failed_with(failure.error);
  if (!failure.denial) return body;
  body.denial = denial_of(*failure.denial);
  for (const core::Denial::Holder& holder : failure.denial->holders) {
    if (body.count == body.holders.size()) break;
    body.holders[body.count++] = holder_of(holder);
  }
  body.own = body.count;
  return body;
}

SliceOpened to_body(const core::SliceOpened& opened) {
  return {opened.slice.value, opened.limit.count, opened.granularity.count};
}

HandleExported to_body(const core::HandleExported& exported) {
  return {exported.handle, to_nanoseconds(exported.expires)};
}

Imported to_body(const core::Imported& imported) {
  static_assert(core::Handles::kMostLeases <= kMostLeases);
  Imported body{};
  body.import = imported.id.value;
  body.device = imported.device;
  body.offset = imported.offset.count;
  body.bytes = imported.bytes.count;
  for (const auto& [lease, extent] : imported.leases) body.sizes[body.count++] = extent.size.count;
  return body;
}

RegionMapped to_body(const core::MappedRegion& region) {
  RegionMapped body{};
  body.version = region.version.value;
  body.layout = region.layout.count;
  body.digest = region.digest;
  body.import = region.imported.id.value;
  body.device = region.imported.device;
  body.offset = region.imported.offset.count;
  body.bytes = region.imported.bytes.count;
  for (const auto& [lease, extent] : region.imported.leases) body.sizes[body.count++] = extent.size.count;
  return body;
}

NameReserved to_body(const core::NameReserved& reserved) {
  return {reserved.reservation.value, to_nanoseconds(reserved.expires)};
}

Granted to_body(const core::Grant& grant, std::size_t first) {
  Granted body{};
  body.grant = grant.id.value;
  body.count = std::min(grant.leases.size() - first, kMostLeases);
  body.missing = grant.leases.size() - first - body.count;
  for (std::size_t i = 0; i < body.count; ++i) {
    const core::OfferedLease& lease = grant.leases[first + i];
    body.leases[i] = {lease.lease.value, lease.extent.size.count, lease.slice.value};
  }
  return body;
}

Described to_body(const core::SessionView& view, std::size_t first) {
  Described body{};
  body.count = std::min(view.slices.size() - first, kMostDescribed);
  body.missing = view.slices.size() - first - body.count;
  for (std::size_t i = 0; i < body.count; ++i) {
    const core::SliceView& slice = view.slices[first + i];
    body.slices[i] = {slice.id.value,      slice.device,
                      slice.limit.count,   slice.charged.count,
                      slice.waiting.count, decltype(DescribedSlice::label)::of(slice.label)};
  }
  return body;
}

Explained to_body(const core::Explanation& explanation, core::TimePoint now) {
  Explained body{};
  body.tenant = decltype(body.tenant)::of(explanation.tenant);
  body.requests = explanation.requests;
  for (const core::Standing& one : explanation.devices) {
    if (body.count == body.devices.size()) break;
    body.devices[body.count++] = {
        one.quota.guarantee.count,
        one.quota.limit.count,
        one.quota.weight,
        one.quota.priority,
        one.charged.count,
        one.declared.count,
        one.overhead.count,
        one.available.count,
        one.burst.count,
        one.debt.count,
        one.asked_back.count,
        one.asked_back_until ? core::to_milliseconds(*one.asked_back_until - now) : 0};
  }
  return body;
}

std::string device_at(const core::Broker& broker, std::uint64_t place) {
  const auto& devices = broker.policy().devices;
  return place < devices.size() ? devices[place].uuid : "at place " + std::to_string(place);
}

std::uint64_t to_nanoseconds(core::TimePoint time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

}  // namespace gpumem::lane
