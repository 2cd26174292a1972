#include "daemon/core/lending/exports.h"

#include <algorithm>

namespace gpumem::core {
namespace {

constexpr Duration kLongestLife = std::chrono::hours(24);
constexpr std::uint64_t kMostUses = 1'000'000;

// The message is the same for a handle that never existed: trying reveals no handles of other tenants.
Error no_handle() {
  return {Code::kNotFound,
          "the broker knows no such handle: it has expired, was used up, its memory was given back, or it is "
          "another tenant's"};
}

}  // namespace

Result<void> Exports::export_handle(const Session& session, ExportHandle request, const HandleBytes& bytes,
                                    TimePoint now) {
  const auto there = leases_.check_exported(session, request.slice, request.leases);
  if (!there) return there.error();
  if (auto alone = leases_.check_no_fabric(request.leases); !alone) return alone;
  if (std::ranges::any_of(request.leases, [this](LeaseId id) { return regions_.is_sealed(id); })) {
    return Error{Code::kFailedPrecondition,
                 "some of this memory is sealed: who imports a handle of it could write to it; others map "
                 "the region by its name"};
  }
  if (request.bytes.is_zero()) request.bytes = there->minus(request.offset);
  if (auto range = check_range(request.offset, request.bytes, *there); !range) return range;
  const TimePoint expires = request.expires(now);
  const std::uint64_t uses = std::max<std::uint64_t>(request.uses, 1);
  if (expires <= now || expires - now > kLongestLife)
    return Error{Code::kInvalidArgument, "a handle lives for some time, 24 hours at most"};
  if (uses > kMostUses)
    return Error{Code::kInvalidArgument, "a handle is for 1 to " + std::to_string(kMostUses) + " imports"};
  const DeviceIndex device = session.slices.at(request.slice).device;
  return handles_.add(
      bytes, {session.id, device, std::move(request.leases), request.offset, request.bytes, expires, uses},
      now);
}

Result<void> Exports::revoke_handle(const Session& session, const HandleBytes& bytes) {
  if (handles_.revoke(session.id, bytes)) return {};
  return Error{Code::kNotFound,
               "the session has no such handle: it has expired, was used up, or its memory was given back"};
}

Result<const Handle*> Exports::redeemable(const Session& session, const HandleBytes& bytes,
                                          TimePoint now) const {
  const Handle* handle = handles_.find(bytes, now);
  if (handle == nullptr) return no_handle();
  const Session& holder = state_.session(handle->holder);
  if (holder.tenant != session.tenant) return no_handle();
  if (auto able = leases_.check_importer(session, holder); !able) return able.error();
  return handle;
}

Imported Exports::import_handle(Session& session, const HandleBytes& bytes, const Handle& handle) {
  Imported imported = leases_.import(session, handle.device, handle.leases, handle.offset, handle.bytes);
  handles_.use(bytes);
  return imported;
}

// A handle needs all of its leases with its holder, and their descriptors.
void Exports::restore(const Checkpoint::Handle& from, DeviceIndex device, TimePoint now) {
  Bytes there;
  for (const LeaseId id : from.leases) {
    const Lease* one = leases_.find(id);
    if (one == nullptr || one->session != from.session || one->in_store || !one->extent.id) return;
    there += one->extent.size;
  }
  if (from.expires <= now || !check_range(from.offset, from.bytes, there)) return;
  static_cast<void>(handles_.add(
      from.name, {from.session, device, from.leases, from.offset, from.bytes, from.expires, from.uses}, now));
}

// ---- Fabric handles ----

// The broker does not know the importers, which may be on other machines: it can neither ask nor end them. So
// only memory that nobody else can ever claim is given out.
Result<std::vector<FabricPart>> Exports::export_fabric(const Session& session, ExportHandle request,
                                                       const FabricHandleOf& handle_of, TimePoint now) {
  const auto there = leases_.check_exported(session, request.slice, request.leases);
  if (!there) return there.error();
  if (request.bytes.is_zero()) request.bytes = there->minus(request.offset);
  if (auto range = check_range(request.offset, request.bytes, *there); !range) return range.error();
  std::vector<FabricPart> parts;
  const Bytes end = request.offset + request.bytes;
  Bytes at;  // where the lease begins
  for (const LeaseId id : request.leases) {
    const Bytes size = leases_.at(id).extent.size;
    const Bytes from = std::max(at, request.offset);
    const Bytes to = std::min(at + size, end);
    if (from < to) parts.push_back({id, {}, size, from - at, to - from});
    at += size;
  }
  const DeviceIndex device = session.slices.at(request.slice).device;
  if (auto allowed = check_fabric(session, device, parts); !allowed) return allowed.error();
  for (FabricPart& part : parts) {
    const auto handle = handle_of(leases_.at(part.lease).extent.id);
    if (!handle) {
      return Error{Code::kFailedPrecondition, "the driver gave lease " + std::to_string(part.lease.value) +
                                                  " no fabric handle: give it back and ask for another"};
    }
    part.handle = *handle;
  }
  Bytes given;
  for (const FabricPart& part : parts) {
    if (!leases_.at(part.lease).fabric) given += part.size;
    leases_.give_by_fabric(part.lease);
  }
  if (!given.is_zero()) state_.note_bytes(Event::Kind::kFabric, session, device, given, now);
  return parts;
}

// No other tenant can claim memory within the guarantee, however long an importer keeps it.
Result<void> Exports::check_fabric(const Session& session, DeviceIndex index,
                                   const std::vector<FabricPart>& parts) const {
  const DevicePolicy& device = state_.policy.devices[index];
  const std::string who = "tenant '" + session.tenant_name + "'";
  if (!device.no_fabric.empty()) {
    return Error{Code::kFailedPrecondition,
                 name_of(state_.policy, index) + " has no fabric handles: " + device.no_fabric};
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
    const std::string which = "lease " + std::to_string(part.lease.value);
    if (state_.imports.find(part.lease) != nullptr) {
      return Error{Code::kFailedPrecondition,
                   which + " has been imported by an IPC handle: a lease is given out in one of both ways"};
    }
    if (regions_.has(part.lease)) {
      return Error{Code::kFailedPrecondition,
                   which +
                       " has been published: a region is mapped by its name, and stays with the broker; "
                       "give other memory out by fabric handles, or remove the region"};
    }
    if (!leases_.at(part.lease).fabric) more += part.size;
  }
  Bytes given;
  for (const SessionId id : state_.tenants.sessions_of(session.tenant))
    given += state_.session(id).holding(index).fabric.total();
  const Bytes guarantee = state_.ledger.quota(session.tenant, index).guarantee;
  if (more <= guarantee.minus(given)) return {};
  return Error{Code::kResourceExhausted,
               to_string(more) + " more by fabric handles, beside " + to_string(given) +
                   ", is more than the " + to_string(guarantee) + " that " + who + " is guaranteed on " +
                   name_of(state_.policy, index) +
                   ": what is beyond may be claimed by others, and nobody could be ended for it"};
}

}  // namespace gpumem::core
