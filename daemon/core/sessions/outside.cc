#include "daemon/core/sessions/outside.h"

#include <algorithm>

namespace gpumem::core {
namespace {

/// The part of the context's charge that nobody is asked for, if the charge becomes `bytes`. It is beyond the
/// estimate, or the limits have no room for it: an estimate can be larger than what was measured before.
Bytes unforeseen_of(const OutsideCharge& outside, Bytes bytes, Bytes estimate, bool has_room) {
  const Bytes foreseen = outside.overhead - outside.unforeseen;
  return bytes.minus(has_room ? estimate : std::min(estimate, foreseen));
}

}  // namespace

void Outside::set(Session& session, DeviceIndex device, Bytes OutsideCharge::*part, Bytes bytes) {
  OutsideCharge& outside = session.outside[device];
  Bytes& charged = outside.*part;
  const bool is_overhead = part == &OutsideCharge::overhead;
  if (charged == bytes && (!is_overhead || outside.unforeseen.is_zero())) return;
  const bool is_context = part == &OutsideCharge::overhead || part == &OutsideCharge::room;
  const TenantId leaf =
      is_context ? state_.charged_for_contexts(session, device) : state_.charged_besides(session, device);
  const auto unasked = [&] { return is_context ? outside.unasked_of_contexts() : outside.past; };
  const Bytes before = unasked();
  if (bytes < charged) state_.ledger.release_outside(leaf, device, charged - bytes);
  if (is_overhead) {
    const bool has_room = !limiting(leaf, device, bytes.minus(charged));
    const Bytes estimate = state_.policy.devices[device].context_overhead;
    outside.unforeseen = unforeseen_of(outside, bytes, estimate, has_room);
  }
  if (bytes > charged) state_.ledger.charge_outside(leaf, device, bytes - charged);
  if (part == &OutsideCharge::declared)
    state_.outbox.record(Checkpoint::Declaration{session.id, device, bytes});
  charged = bytes;
  state_.charge_unasked(leaf, device, before, unasked());
  if (session.declared(device).is_zero())
    state_.declaring[device].erase(session.id);
  else
    state_.declaring[device].insert(session.id);
  state_.outbox.touch(session.id);
}

// The first tenant, from the leaf up, whose limit has no room; for no bytes, the first that is beyond its
// limit. Memory that jobs have reserved and do not use gives way (Reservations).
TenantId Outside::limiting(TenantId leaf, DeviceIndex device, Bytes bytes) const {
  const Ledger& ledger = state_.ledger;
  for (TenantId tenant = leaf; tenant; tenant = ledger.parent(tenant)) {
    const Bytes unused = ledger.charges(tenant, device)[Charge::kReserved];
    const Bytes beyond =
        bytes.is_zero() ? ledger.debt(tenant, device) : ledger.excess_at(tenant, leaf, device, bytes);
    if (beyond > unused) return tenant;
  }
  return {};
}

// A process has one context for all its sessions.
bool Outside::has_context(const Session& session, DeviceIndex device) const {
  const auto has = [&](const Session& one) {
    const auto known = one.outside.find(device);
    return known != one.outside.end() && (known->second.begun || known->second.measured);
  };
  if (has(session)) return true;
  return std::ranges::any_of(state_.tenants.sessions_of(session.tenant), [&](SessionId id) {
    const Session& other = state_.session(id);
    return other.peer.is_same_process(session.peer) && has(other);
  });
}

Result<void> Outside::check_context(const Session& session, DeviceIndex device) const {
  const Bytes overhead = state_.policy.devices[device].context_overhead;
  if (overhead.is_zero() || has_context(session, device)) return {};
  const TenantId at = limiting(state_.charged_for_contexts(session, device), device, overhead);
  if (!at) return {};
  const bool is_job = state_.tenants.is_job(at);
  const Bytes used = state_.ledger.used(at, device);
  const Bytes unused = state_.ledger.charges(at, device)[Charge::kReserved];
  return Error{
      Code::kResourceExhausted,
      "a context on " + name_of(state_.policy, device) + " is charged with " + to_string(overhead) +
          ", which would pass the limit of " + (is_job ? "" : "tenant ") + "'" + state_.tenants.name(at) +
          "' (" + to_string(state_.ledger.quota(at, device).limit) + ", of which " +
          to_string(used - unused) + " are charged already); give memory back or " +
          (is_job ? "start the command with a higher --limit" : "ask the administrator for a higher limit")};
}

void Outside::begin_context(Session& session, DeviceIndex device) {
  const bool had_context = has_context(session, device);
  session.outside[device].begun = true;
  if (!had_context)
    set(session, device, &OutsideCharge::overhead, state_.policy.devices[device].context_overhead);
}

void Outside::change_room(Session& session, DeviceIndex device, Bytes before, Bytes after) {
  OutsideCharge& outside = session.outside[device];
  if (!outside.measured && !after.is_zero()) set(session, device, &OutsideCharge::overhead, {});
  set(session, device, &OutsideCharge::room, outside.room - before + after);
  if (outside.room.is_zero() && !outside.measured && outside.begun)
    set(session, device, &OutsideCharge::overhead, state_.policy.devices[device].context_overhead);
}

void Outside::note_room(Session& session, DeviceIndex device, Bytes bytes) {
  OutsideCharge& outside = session.outside[device];
  if (!outside.measured) set(session, device, &OutsideCharge::overhead, {});
  const TenantId leaf = state_.charged_for_contexts(session, device);
  state_.transfer_outside(state_.charged_besides(session, device), leaf, device, bytes, {});
  outside.room += bytes;
  state_.charge_unasked(leaf, device, {}, bytes);
  state_.outbox.touch(session.id);
}

void Outside::set_in_limit(DeviceIndex device, bool in_limit) {
  if (std::exchange(state_.policy.devices[device].contexts_in_limit, in_limit) == in_limit) return;
  for (const auto& [id, session] : state_.sessions) {
    const auto found = session->outside.find(device);
    if (found == session->outside.end()) continue;
    const TenantId besides = state_.charged_besides(*session, device);
    state_.transfer_outside(in_limit ? besides : session->leaf, in_limit ? session->leaf : besides, device,
                            found->second.of_contexts(), found->second.unasked_of_contexts());
    excuse_context(*session, device);
  }
}

void Outside::excuse_context(Session& session, DeviceIndex device) {
  const auto found = session.outside.find(device);
  if (found == session.outside.end()) return;
  const TenantId leaf = state_.charged_for_contexts(session, device);
  if (limiting(leaf, device, {})) set_unforeseen(session, device, found->second.overhead);
}

void Outside::follow_policy() {
  for (const auto& [id, session] : state_.sessions) {
    for (const auto& [device, outside] : session->outside) {
      const Bytes beyond = outside.overhead.minus(state_.policy.devices[device].context_overhead);
      if (beyond > outside.unforeseen) set_unforeseen(*session, device, beyond);
    }
  }
}

void Outside::set_unforeseen(Session& session, DeviceIndex device, Bytes bytes) {
  OutsideCharge& outside = session.outside.at(device);
  const Bytes before = outside.unasked_of_contexts();
  outside.unforeseen = bytes;
  state_.charge_unasked(state_.charged_for_contexts(session, device), device, before,
                        outside.unasked_of_contexts());
}

void Outside::end(Session& session) {
  const auto release = [&](TenantId leaf, DeviceIndex device, Bytes bytes, Bytes not_asked) {
    if (!bytes.is_zero()) state_.ledger.release_outside(leaf, device, bytes);
    state_.charge_unasked(leaf, device, not_asked, {});
  };
  for (const auto& [device, outside] : session.outside) {
    release(state_.charged_for_contexts(session, device), device, outside.of_contexts(),
            outside.unasked_of_contexts());
    release(state_.charged_besides(session, device), device, outside.besides_contexts(), outside.past);
    state_.declaring[device].erase(session.id);
    if (!outside.declared.is_zero()) state_.outbox.record(Checkpoint::Declaration{session.id, device, {}});
  }
  session.outside.clear();
}

Result<void> Outside::check_room(const Session& session, DeviceIndex device, Bytes more) const {
  const TenantId at = limiting(state_.charged_besides(session, device), device, more);
  if (!at) return {};
  const Bytes limit = state_.ledger.quota(at, device).limit;
  const bool is_job = state_.tenants.is_job(at);
  const std::string of_whom = std::string(state_.policy.devices[device].is_host() ? "host_limit" : "limit") +
                              " of " + (is_job ? "" : "tenant ") + state_.tenants.name(at) + ", " +
                              to_string(limit);
  const std::string why =
      more > limit
          ? to_string(more) + " alone are more than the " + of_whom + "; ask for less"
          : to_string(state_.ledger.used(at, device)) + " of the " + of_whom + ", are charged; free some";
  return Error{Code::kResourceExhausted, why + ", or " +
                                             (is_job ? "start the command with a higher --host-limit"
                                                     : "ask the administrator for a higher one")};
}

Result<void> Outside::declare(Session& session, DeviceIndex index, Bytes declared, bool is_bounded) {
  const DevicePolicy& device = state_.policy.devices[index];
  if (declared > device.total) {
    return Error{Code::kInvalidArgument,
                 to_string(declared) + " are more than " + name_of(state_.policy, index) +
                     " has: " + to_string(device.total) + "; declare what the process holds of it"};
  }
  OutsideCharge& outside = session.outside[index];
  // What was seen before it was declared is the same memory.
  const Bytes more = declared.minus(outside.declared);
  if (is_bounded && !more.is_zero()) {
    if (auto room = check_room(session, index, more); !room) return room;
  }
  set(session, index, &OutsideCharge::past, outside.past.minus(more));
  set(session, index, &OutsideCharge::declared, declared);
  if (outside.past.is_zero() && excused(session, index) == declared) outside.watch.clear();
  return {};
}

Bytes Outside::excused(Session& session, DeviceIndex device) {
  OutsideCharge& outside = session.outside[device];
  const Bytes declared = outside.declared;
  const Bytes others = state_.ledger.used(session.tenant, device).minus(declared);
  const Bytes room = state_.ledger.quota(session.tenant, device).limit.minus(others);
  outside.excused = std::min(declared, std::max(outside.excused, room));
  return outside.excused;
}

}  // namespace gpumem::core
