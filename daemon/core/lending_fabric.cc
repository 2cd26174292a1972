#include <algorithm>

#include "daemon/core/lending.h"

// Memory that is given out by the driver's fabric handles. The broker does not know the importers, which may
// be on other machines: it can neither ask nor end them. So only memory that nobody else can ever claim is
// given out.

namespace gpumem::core {

Result<std::vector<FabricPart>> Lending::export_fabric(Session& session, ExportHandle request,
                                                       const FabricHandleOf& handle_of, TimePoint now) {
  const auto there = check_exported(session, request.slice, request.leases);
  if (!there) return there.error();
  if (auto in_hands = check_descriptors(request.leases); !in_hands) return in_hands.error();
  if (request.bytes.is_zero()) request.bytes = there->minus(request.offset);
  if (auto range = check_range(request.offset, request.bytes, *there); !range) return range.error();
  std::vector<FabricPart> parts;
  const Bytes end = request.offset + request.bytes;
  Bytes at;  // where the lease begins
  for (const LeaseId id : request.leases) {
    const Bytes size = lease(id).extent.size;
    const Bytes from = std::max(at, request.offset);
    const Bytes to = std::min(at + size, end);
    if (from < to) parts.push_back({id, {}, size, from - at, to - from});
    at += size;
  }
  const DeviceIndex device = session.slices.at(request.slice).device;
  if (auto allowed = check_fabric(session, device, parts); !allowed) return allowed.error();
  for (FabricPart& part : parts) {
    const auto handle = handle_of(lease(part.lease).extent.id);
    if (!handle) {
      return Error{Code::kFailedPrecondition, "the driver gave lease " + std::to_string(part.lease.value) +
                                                  " no fabric handle: give it back and ask for another"};
    }
    part.handle = *handle;
  }
  Bytes given;
  for (const FabricPart& part : parts) {
    if (!lease(part.lease).fabric) given += part.size;
    give_by_fabric(session, lease(part.lease));
  }
  if (!given.is_zero()) state_.note_bytes(Event::Kind::kFabric, session, device, given, now);
  return parts;
}

// Memory within a guarantee is nobody else's to claim, whoever keeps it for however long.
Result<void> Lending::check_fabric(const Session& session, DeviceIndex index,
                                   const std::vector<FabricPart>& parts) const {
  const DevicePolicy& device = state_.policy.devices[index];
  const std::string who = "tenant '" + session.tenant_name + "'";
  if (!device.no_fabric.empty()) {
    return Error{Code::kFailedPrecondition, device.uuid + " has no fabric handles: " + device.no_fabric};
  }
  const auto rule = std::ranges::find(state_.policy.tenants, session.tenant_name, &TenantRule::name);
  if (rule == state_.policy.tenants.end() || !rule->fabric_handles) {
    return Error{Code::kPermissionDenied,
                 who +
                     " may not give memory out by fabric handles; an administrator allows it by "
                     "fabric_handles = true in its [[tenant]]"};
  }
  Bytes more;
  for (const FabricPart& part : parts) {
    if (state_.imports.find(part.lease) != nullptr) {
      return Error{Code::kFailedPrecondition,
                   "lease " + std::to_string(part.lease.value) +
                       " has been imported by an IPC handle: a lease is given out in "
                       "one of both ways"};
    }
    if (regions_.has(part.lease)) {
      return Error{Code::kFailedPrecondition,
                   "lease " + std::to_string(part.lease.value) +
                       " has been published: a region is mapped by its name, and stays with the broker; give "
                       "other memory out by fabric handles, or remove the region"};
    }
    if (!lease(part.lease).fabric) more += part.size;
  }
  const Bytes given = given_by_fabric(session.tenant, index);
  const Bytes guarantee = state_.ledger.quota(session.tenant, index).guarantee;
  if (more <= guarantee.minus(given)) return {};
  return Error{Code::kResourceExhausted,
               to_string(more) + " more by fabric handles, beside " + to_string(given) +
                   ", is more than the " + to_string(guarantee) + " that " + who + " is guaranteed on " +
                   device.uuid +
                   ": what is beyond may be claimed by others, and nobody could be ended for it"};
}

Bytes Lending::given_by_fabric(TenantId tenant, DeviceIndex device) const {
  Bytes sum;
  for (const SessionId id : state_.tenants.at(tenant).sessions)
    sum += state_.session(id).holding(device).fabric.total();
  return sum;
}

void Lending::give_by_fabric(Session& session, Lease& lease) {
  if (std::exchange(lease.fabric, true)) return;
  handles_.drop(lease.id);
  state_.outbox.record(checkpoint_of(lease));
  session.holdings[lease.device].fabric[lease.state] += lease.extent.size;
  state_.outbox.touch(session.id);
}

}  // namespace gpumem::core
