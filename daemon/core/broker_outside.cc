#include <algorithm>

#include "daemon/core/broker.h"

// What sessions are charged besides their leases: what they declare, and their contexts.

namespace gpumem::core {

void Broker::set_outside(Session& session, DeviceIndex device, Bytes Outside::*part, Bytes bytes) {
  Bytes& charged = session.outside[device].*part;
  if (charged == bytes) return;
  if (bytes > charged)
    ledger_.charge_outside(session.tenant, device, bytes - charged);
  else
    ledger_.release_outside(session.tenant, device, charged - bytes);
  charged = bytes;
  touch(session.id);
}

Result<void> Broker::check_overhead(const Session& session, DeviceIndex device) const {
  const auto known = session.outside.find(device);
  const bool has_begun = known != session.outside.end() && (known->second.begun || known->second.measured);
  const Bytes overhead = policy_.devices[device].context_overhead;
  if (has_begun || overhead.is_zero()) return {};
  const TenantId limiting = ledger_.limiting(session.tenant, device, overhead);
  if (!limiting) return {};
  return Error{Code::kResourceExhausted,
               "a context on " + policy_.devices[device].uuid + " is charged with " + to_string(overhead) +
                   ", which would pass the limit of tenant '" + tenants_.at(limiting).name + "' (" +
                   to_string(ledger_.quota(limiting, device).limit) + ", of which " +
                   to_string(ledger_.used(limiting, device)) +
                   " are charged already); give memory back or ask the administrator for a higher limit"};
}

void Broker::begin_overhead(Session& session, DeviceIndex device) {
  Outside& outside = session.outside[device];
  if (std::exchange(outside.begun, true) || outside.measured) return;
  set_outside(session, device, &Outside::overhead, policy_.devices[device].context_overhead);
}

void Broker::end_outside(Session& session) {
  for (const auto& [device, outside] : session.outside) {
    if (!outside.total().is_zero()) ledger_.release_outside(session.tenant, device, outside.total());
  }
  session.outside.clear();
}

void Broker::note_freed(const Lease& lease) {
  if (const auto session = sessions_.find(lease.session); session != sessions_.end())
    session->second.outside[lease.device].freed += lease.extent.size;
}

Result<void> Broker::charge(SessionId id, const std::string& device, Bytes declared, TimePoint now) {
  auto session = live_session(id);
  if (!session) return session.error();
  const auto index = find_device(device);
  if (!index) return index.error();
  const Bytes total = policy_.devices[*index].total;
  if (declared > total) {
    return Error{Code::kInvalidArgument, to_string(declared) + " are more than " + device + " has: " +
                                             to_string(total) + "; declare what the process holds of it"};
  }
  Outside& outside = (*session)->outside[*index];
  // What was seen before it was declared is the same memory.
  const Bytes more = declared.minus(outside.declared);
  set_outside(**session, *index, &Outside::past, outside.past.minus(more));
  set_outside(**session, *index, &Outside::declared, declared);
  if (outside.past.is_zero()) outside.watch.see({});
  settle(now);
  return {};
}

}  // namespace gpumem::core
