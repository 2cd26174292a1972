#include "daemon/core/lending/context_room.h"

#include <algorithm>
#include <utility>

namespace gpumem::core {
ContextRoom::ContextRoom(State& state, Leases& leases, Outside& outside)
    : state_(state), leases_(leases), outside_(outside), devices_(state.policy.devices.size()) {}

// A process for whose context it did not suffice is expected to need more.
Bytes ContextRoom::estimate(const Session& session, DeviceIndex device) const {
  const DevicePolicy& policy = state_.policy.devices[device];
  const auto outside = session.outside.find(device);
  const Bytes least = outside == session.outside.end() ? Bytes{} : outside->second.context_needs;
  if (devices_[device].measured) return std::max(least, *devices_[device].measured);
  if (!policy.context_overhead.is_zero()) return std::max(least, policy.context_overhead);
  return std::max(least, usual_context(policy.total, state_.policy.past_broker.allowance));
}

bool ContextRoom::has_failed(const Session& session, DeviceIndex device) const {
  const auto outside = session.outside.find(device);
  return outside != session.outside.end() && !outside->second.context_needs.is_zero();
}

// ---- Announced ----

void ContextRoom::announce(RequestId id, const Session& session, DeviceIndex device, Duration wait,
                           TimePoint now) {
  forget_made(session, now);
  if (is_full(session)) {
    state_.outbox.emit(AnswerGrow{id, Grant{}});
    return;
  }
  by_session_[session.id].push_back(id);
  ++by_account_[session.peer.account()];
  Announced& one = all_[id];
  one.session = session.id;
  one.account = session.peer.account();
  one.device = device;
  one.wait = wait;
  one.asked = now;
  need(one, estimate(session, device));
  find_place(one);
  const bool has_place = one.is_free_of_charge || !one.charged.is_zero();
  if (has_place || has_failed(session, device)) return look(id, device);
  need(one, {});
  make_ready(id, one, now);
}

bool ContextRoom::is_full(const Session& session) const {
  const auto own = by_session_.find(session.id);
  const auto of_account = by_account_.find(session.peer.account());
  return (own != by_session_.end() && own->second.size() >= state_.policy.max_requests_per_session) ||
         (of_account != by_account_.end() && of_account->second >= state_.policy.max_requests_per_user());
}

// A program may make contexts faster than they are measured.
void ContextRoom::forget_made(const Session& session, TimePoint now) {
  const auto own = by_session_.find(session.id);
  if (own == by_session_.end() || own->second.size() < state_.policy.max_requests_per_session) return;
  const auto is_made = [&](RequestId one) { return all_.at(one).stage == Stage::kMade; };
  const auto oldest = std::ranges::find_if(own->second, is_made);
  if (oldest != own->second.end()) end(all_.find(*oldest), now);
}

void ContextRoom::find_place(Announced& one) {
  if (free_of_charge_.emplace(one.account, one.device).second) {
    one.is_free_of_charge = true;
    return;
  }
  const TenantId leaf = state_.charged_for_contexts(state_.session(one.session), one.device);
  if (!state_.ledger.limiting(leaf, one.device, one.needed)) charge(one, one.needed);
}

void ContextRoom::lose_place(Announced& one) {
  if (std::exchange(one.is_free_of_charge, false)) free_of_charge_.erase({one.account, one.device});
  charge(one, {});
}

void ContextRoom::charge(Announced& one, Bytes bytes) {
  if (one.charged == bytes) return;
  if (Session* const session = state_.find(one.session); session != nullptr)
    outside_.change_room(*session, one.device, one.charged, bytes);
  one.charged = bytes;
}

void ContextRoom::claim(Announced& one, Bytes bytes) {
  Bytes& all = devices_[one.device].claimed;
  all = all - one.claimed + bytes;
  one.claimed = bytes;
}

void ContextRoom::need(Announced& one, Bytes needed) {
  one.needed = needed;
  expect(one, needed);
}

void ContextRoom::expect(Announced& one, Bytes bytes) {
  Bytes& expected = devices_[one.device].expected;
  expected = expected - one.expected + bytes;
  one.expected = bytes;
  leases_.store(one.device).expect_contexts(expected);
}

void ContextRoom::look(RequestId id, DeviceIndex device) {
  devices_[device].looking.insert(id);
  all_.at(id).crossed = {};
  leases_.store(device).look(id);
}

std::optional<Request> ContextRoom::looked(RequestId id, std::optional<Bytes> free, TimePoint now) {
  const auto found = all_.find(id);
  if (found == all_.end()) return std::nullopt;
  Announced& one = found->second;
  Device& device = devices_[one.device];
  device.looking.erase(id);
  const bool has_waited = one.stage == Stage::kWaiting;
  if (one.stage != Stage::kLooking && !has_waited) return std::nullopt;
  const bool has_place = one.is_free_of_charge || !one.charged.is_zero();
  const Bytes others = device.claimed - one.claimed + one.crossed;
  const Bytes left = !free ? one.needed : has_place ? free->minus(others) : Bytes{};
  const Bytes lack = one.needed.minus(left);
  if (lack.is_zero()) {
    if (has_waited) state_.arbiter.remove(id);
    claim(one, one.needed);
    one.taken = {};
    make_ready(id, one, now);
    return std::nullopt;
  }
  if (has_waited) return std::nullopt;
  one.stage = Stage::kWaiting;
  const Bytes granularity = state_.policy.devices[one.device].granularity;
  one.taken = lack.rounded_up(granularity).value_or(lack);
  claim(one, one.needed - lack);
  need(one, one.claimed + one.taken);
  expect(one, one.claimed);  // for the rest it waits, uncharged, and keeps nothing from others
  charge(one, std::min(one.charged, one.claimed));
  Session& session = state_.session(one.session);
  return Request{.id = id,
                 .session = one.session,
                 .tenant = state_.tenants.leaf_of(session.tenant),
                 .parts = {Request::Part{{}, one.device, one.taken, one.taken}},
                 .asked = one.asked,
                 .wait = one.wait,
                 .deadline = one.asked + one.wait,
                 .may_borrow = false,  // nobody can take it back
                 .account = one.account,
                 .kind = Request::Kind::kContext,
                 .context = one.needed};
}

bool ContextRoom::leave_to_driver(RequestId id, TimePoint now) {
  const auto found = all_.find(id);
  if (found == all_.end()) return false;
  Announced& one = found->second;
  if (one.claimed.is_zero() || has_failed(state_.session(one.session), one.device)) return false;
  one.taken = {};
  need(one, one.claimed);
  make_ready(id, one, now);
  return true;
}

void ContextRoom::granted(const Request& request, Bytes bytes) {
  Announced& one = all_.at(request.id);
  one.stage = Stage::kReleasing;
  expect(one, one.needed);
  outside_.note_room(state_.session(one.session), one.device, bytes);
  state_.given_to_contexts[one.device] += bytes;
  leases_.store(one.device).release(request.id, bytes);
}

void ContextRoom::released(RequestId id, TimePoint now) {
  const auto found = all_.find(id);
  if (found == all_.end()) return;
  claim(found->second, found->second.needed);
  make_ready(id, found->second, now);
}

void ContextRoom::make_ready(RequestId id, Announced& one, TimePoint now) {
  one.stage = Stage::kReady;
  last_until(id, one, now + kLongest);
  state_.outbox.emit(AnswerGrow{id, Grant{}});
}

void ContextRoom::last_until(RequestId id, Announced& one, TimePoint until) {
  deadlines_.erase({one.until, id});
  one.until = until;
  deadlines_.emplace(until, id);
}

bool ContextRoom::is_under_way(RequestId id) const {
  const auto found = all_.find(id);
  if (found == all_.end()) return false;
  return found->second.stage == Stage::kLooking || found->second.stage == Stage::kReleasing;
}

void ContextRoom::look_again() {
  for (const auto& [id, one] : all_)
    if (one.stage == Stage::kWaiting && !devices_[one.device].looking.contains(id)) look(id, one.device);
}

// ---- The end ----

void ContextRoom::drop(RequestId id, TimePoint now) {
  if (const auto found = all_.find(id); found != all_.end()) end(found, now);
}

bool ContextRoom::unobtainable(RequestId id, TimePoint now) {
  const auto found = all_.find(id);
  if (found == all_.end()) return false;
  Announced& one = found->second;
  note_refusal(one.device, now);
  outside_.change_room(state_.session(one.session), one.device, one.taken, {});
  state_.given_to_contexts[one.device] -= one.taken;
  one.taken = {};  // the store has nothing to take back
  end(found, now);
  return true;
}

void ContextRoom::refused(const Request& request, TimePoint now) {
  note_refusal(request.parts.front().device, now);
  drop(request.id, now);
}

void ContextRoom::note_refusal(DeviceIndex device, TimePoint now) {
  ++devices_[device].refusals.count;
  devices_[device].refusals.last = now;
}

void ContextRoom::done(const Session& session, DeviceIndex device, ContextDone::Outcome outcome,
                       TimePoint now) {
  const auto own = by_session_.find(session.id);
  if (own == by_session_.end()) return;
  const auto id = std::ranges::find_if(own->second, [&](RequestId one) {
    return all_.at(one).device == device && all_.at(one).stage == Stage::kReady;
  });
  if (id == own->second.end()) return;
  const auto found = all_.find(*id);
  if (outcome == ContextDone::Outcome::kMade) return note_made(found, now);
  if (outcome == ContextDone::Outcome::kOutOfMemory) note_failed(found, now);
  end(found, now);
}

// The driver may have been asked before the context was there, and answer later. A job waits for what its
// estimate takes too much.
void ContextRoom::note_made(All::iterator found, TimePoint now) {
  const RequestId id = found->first;
  Announced& one = found->second;
  OutsideCharge& outside = state_.session(one.session).outside[one.device];
  one.is_first = ++outside.contexts_made == 1 && !outside.measured;
  outside.context_needs = {};
  outside.contexts_failed = 0;
  for (const RequestId looking : devices_[one.device].looking) all_.at(looking).crossed += one.needed;
  one.stage = Stage::kMade;
  claim(one, {});
  need(one, {});
  lose_place(one);
  one.made = now;
  last_until(id, one, now + kLongest);
  const bool is_estimated = state_.policy.devices[one.device].contexts_in_limit && !outside.measured;
  if (!one.taken.is_zero() || is_estimated) state_.outbox.emit(LookAtDevices{one.account});
}

// The next one of the session is expected to need more. Where it had no place, others may have taken the
// memory.
void ContextRoom::note_failed(All::iterator found, TimePoint now) {
  const Announced& one = found->second;
  Session& session = state_.session(one.session);
  const Bytes most = state_.policy.past_broker.allowance;
  const Bytes expected = estimate(session, one.device);
  OutsideCharge& outside = session.outside[one.device];
  const bool is_unplaced = one.needed < expected;
  outside.context_needs =
      is_unplaced ? expected : std::max(expected, std::min(Bytes{2 * expected.count}, most));
  if (++outside.contexts_failed < ContextDone::kAttempts) return;
  outside.contexts_failed = 0;
  note_refusal(one.device, now);
  Event& event = state_.note(Event::Kind::kDenied, session, now);
  event.request = found->first;
  event.device = one.device;
  event.bytes = expected;
  event.words = "the driver had no memory for a context, for which the broker expected " +
                to_string(expected) + " to suffice";
}

ContextRoom::All::iterator ContextRoom::end(All::iterator found, TimePoint now) {
  const RequestId id = found->first;
  Announced& one = found->second;
  Store& store = leases_.store(one.device);
  if (one.stage >= Stage::kReleasing && !one.taken.is_zero()) {
    if (!(one.stage == Stage::kReleasing && store.withdraw(id))) store.reopen(one.taken, now);
    outside_.change_room(state_.session(one.session), one.device, one.taken, {});
    state_.given_to_contexts[one.device] -= one.taken;
  }
  claim(one, {});
  need(one, {});
  lose_place(one);
  deadlines_.erase({one.until, id});
  devices_[one.device].looking.erase(id);
  const auto own = by_session_.find(one.session);
  std::erase(own->second, id);
  if (own->second.empty()) by_session_.erase(own);
  if (const auto account = by_account_.find(one.account); --account->second == 0) by_account_.erase(account);
  return all_.erase(found);
}

void ContextRoom::end(SessionId session, TimePoint now) {
  const auto own = by_session_.find(session);
  if (own == by_session_.end()) return;
  for (const RequestId id : std::vector(own->second)) end(all_.find(id), now);
}

// ---- Measured ----

void ContextRoom::begin_observation(DeviceIndex device) {
  for (auto& [id, one] : all_)
    if (one.device == device && one.stage == Stage::kMade) one.is_seen = true;
}

void ContextRoom::observed(DeviceIndex device, TimePoint now) {
  for (auto found = all_.begin(); found != all_.end();) {
    const Announced& one = found->second;
    const Session& session = state_.session(one.session);
    const auto outside = session.outside.find(device);
    if (one.device != device || !one.is_seen || outside == session.outside.end() ||
        !outside->second.measured) {
      ++found;
      continue;
    }
    // The first context is the only one that its process has.
    const Bytes measured = outside->second.overhead;
    const bool is_first = one.is_first && outside->second.contexts_made == 1;
    if (is_first && now <= one.made + kFresh && !measured.is_zero()) devices_[device].measured = measured;
    found = end(found, now);
  }
}

void ContextRoom::tick(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now)
    end(all_.find(deadlines_.begin()->second), now);
}

std::optional<TimePoint> ContextRoom::next_deadline() const {
  return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first);
}

}  // namespace gpumem::core
