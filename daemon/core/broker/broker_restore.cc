#include <algorithm>

#include "base/text/printable.h"
#include "daemon/core/broker/broker.h"

// The start after another broker, and its clients that come back.

namespace gpumem::core {
namespace {

// For a client that is back. It asks at once for what it waits for: what it asks for later is something new.
constexpr Duration kToAskAgain = std::chrono::seconds(2);

}  // namespace

Checkpoint Broker::checkpoint() const {
  Checkpoint checkpoint;
  checkpoint.last.session = state_.session_ids.last();
  for (const auto& [id, session] : state_.sessions) {
    checkpoint.sessions.emplace(id, checkpoint_of(*session));
    for (const auto& [device, outside] : session->outside)
      if (!outside.declared.is_zero())
        checkpoint.declarations.emplace(std::pair(id, device),
                                        Checkpoint::Declaration{id, device, outside.declared});
  }
  jobs_.add_to(checkpoint);
  leases_.add_to(checkpoint);
  exports_.add_to(checkpoint);
  published_.add_to(checkpoint);
  growths_.add_to(checkpoint);
  sharer_.add_to(checkpoint);
  usage_.add_to(checkpoint);
  return checkpoint;
}

Restored Broker::restore(const Checkpoint& from, const std::vector<std::string>& devices,
                         const std::set<LeaseId>& kept, TimePoint now) {
  Restored restored;
  state_.session_ids.skip(from.last.session);
  leases_.skip(from.last);
  published_.skip(from.last);
  std::vector<std::optional<DeviceIndex>> places;
  for (DeviceIndex i = 0; i < devices.size(); ++i) {
    const auto index = state_.find_device(devices[i]);
    places.push_back(index ? std::optional(*index) : std::nullopt);
    if (index) leases_.adopt(*index, from.lent(i));
  }
  for (const auto& [id, session] : from.sessions) restore(session);
  jobs_.skip(from.last.job);
  jobs_.restore(from.jobs, places);
  const auto restore_each = [&](const auto& entries, auto take) {
    for (const auto& [id, entry] : entries) {
      Session* session = state_.find(entry.session);
      const auto index = state_.find_device(devices[entry.device]);
      if (session != nullptr && index) take(*session, entry, *index);
    }
  };
  restore_each(from.slices, [this](Session& session, const Checkpoint::Slice& slice, DeviceIndex device) {
    leases_.restore(session, slice, device);
  });
  restore_each(from.leases, [&](Session& session, const Checkpoint::Lease& lease, DeviceIndex device) {
    const Extent extent = leases_.restore(session, lease, device, kept.contains(lease.id));
    if (extent.id) restored.extents.push_back({lease.id, device, extent});
  });
  jobs_.restore_reservations(from.jobs, places, now);
  restore_each(from.declarations,
               [this](Session& session, const Checkpoint::Declaration& declaration, DeviceIndex device) {
                 outside_.set(session, device, &OutsideCharge::declared, declaration.bytes);
               });
  // Now that all else is charged, an estimate without room in the limits is known as such.
  restore_each(from.slices, [this](Session& session, const Checkpoint::Slice&, DeviceIndex device) {
    outside_.begin_context(session, device);
  });
  restore_users(from);
  restore_each(from.handles, [&](Session& session, const Checkpoint::Handle& handle, DeviceIndex device) {
    if (!session.ended) exports_.restore(handle, device, now);
  });
  for (const auto& [id, region] : from.regions)
    if (const auto at = state_.find_device(devices[region.device])) published_.restore(region, *at, now);
  for (const auto& [id, sealed] : from.sealed) published_.restore(sealed);
  for (const auto& [id, answers] : from.answers) {
    if (!awaits(id)) continue;
    for (const Checkpoint::Answer& answer : answers) sharer_.restore(answer);
  }
  for (const auto& [key, waiting] : from.waiting) {
    if (!awaits(waiting.session)) continue;
    growths_.restore(waiting);
    restored.last_request = std::max(restored.last_request, waiting.id);
  }
  usage_.restore(from.accounts, places, now);
  usage_.restore(from.spent, now);
  restored.sessions = settle_restored(now);
  return restored;
}

// The sessions that use memory of others. A reader without a slice has a context, too.
void Broker::restore_users(const Checkpoint& from) {
  for (const auto& [id, import] : from.imports) {
    Session* session = state_.find(import.session);
    if (session == nullptr) continue;
    leases_.restore(import);
    for (const LeaseId lease : import.leases)
      if (const Lease* one = leases_.find(lease)) outside_.begin_context(*session, one->device);
  }
  for (const auto& [lease, session] : from.suspects)
    if (state_.find(session) != nullptr) leases_.restore_suspect(lease, session);
}

// A session without a rule, or whose guarantee has no room, keeps its tenant, which may not grow.
void Broker::restore(const Checkpoint::Session& from) {
  const TenantMatch uncovered{from.tenant, {}, Quotas(state_.policy.devices.size())};
  TenantMatch match = tenant_of_session(state_.policy, from.peer, from.tenant);
  // A tenant that has become a group has no sessions. They may not grow until their user has a rule.
  const auto user = from.peer.user();
  const auto is_member = [&](const TenantRule& rule) { return rule.parent == match.name; };
  if (user && std::ranges::any_of(state_.policy.tenants, is_member))
    match = {user_tenant(*user), {}, uncovered.quotas};
  auto tenant = state_.tenants.admit(state_.policy, match);
  if (!tenant) tenant = state_.tenants.admit(state_.policy, uncovered);
  auto session = std::make_unique<Session>();
  session->id = from.id;
  session->tenant = *tenant;
  session->leaf = state_.tenants.leaf_of(*tenant);
  session->job = from.job;
  session->tenant_name = state_.tenants.name(*tenant);
  session->peer = from.peer;
  session->label = to_printable(from.label);
  session->since = from.since;
  session->spent.begin(from.since);
  session->ended = from.ended;
  session->awaited = !from.ended && from.peer.maps;
  state_.sessions.emplace(from.id, std::move(session));
  state_.session_order.insert(from.id);
  state_.tenants.join(state_.session(from.id).leaf, from.id);
}

// A session that is a stream of gRPC has ended with its stream; nothing of its memory was handed to it.
std::vector<RestoredSession> Broker::settle_restored(TimePoint now) {
  std::vector<RestoredSession> restored;
  const std::vector<SessionId> all(state_.session_order.begin(), state_.session_order.end());
  for (const SessionId id : all) {
    const Session* session = state_.find(id);
    if (session == nullptr) continue;
    if (session->peer.maps && (session->awaited || !session->leases.empty() || state_.imports.knows(id))) {
      restored.push_back({id, session->peer, session->awaited});
    } else {
      session_ended(id, SessionEnd::kReleased, now);
    }
  }
  reclaimer_.replan();
  settle(now);
  return restored;
}

bool Broker::awaits(SessionId id) const {
  const Session* session = state_.find(id);
  return session != nullptr && session->awaited;
}

bool Broker::holds_nothing(SessionId id) const {
  const Session* session = state_.find(id);
  return session == nullptr || (session->leases.empty() && !state_.imports.knows(id));
}

std::size_t Broker::most_in_inventory(SessionId id) const {
  const Session* session = state_.find(id);
  if (session == nullptr) return 0;
  return session->slices.size() + session->leases.size() + state_.imports.of(id).size();
}

Result<void> Broker::resume(SessionId id, const Inventory& inventory, TimePoint now) {
  Session* session = state_.find(id);
  if (session == nullptr || !session->awaited)
    return Error{Code::kNotFound, "the broker awaits no client of session " + std::to_string(id.value)};
  if (auto right = leases_.check_inventory(*session, inventory); !right) return right;
  session->awaited = false;
  for (auto& [device, asked] : session->asked) {  // while it was away, it was not told
    if (asked.bytes.is_zero()) continue;
    asked.deadline = now + state_.policy.devices[device].reclaim.deadline;
    reclaimer_.replan();
  }
  leases_.settle_inventory(*session, inventory, now);
  growths_.keep_places_until(id, now + kToAskAgain);
  state_.note(Event::Kind::kResumed, *session, now);
  state_.outbox.touch(id);
  settle(now);
  return {};
}

}  // namespace gpumem::core
