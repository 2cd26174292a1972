// Growths that were granted: the stores bring their memory together, and the session is offered it.

#include <algorithm>

#include "daemon/core/lending/growths.h"
#include "daemon/core/words/refusals.h"

namespace gpumem::core {

std::vector<SessionId> Growths::progress(TimePoint now) {
  std::vector<SessionId> freed;
  for (bool changed = true; changed && freed.empty();) {
    changed = false;
    // Before the store of an elastic pool uses what it has created for its stock.
    for (DeviceIndex device = 0; device < state_.policy.devices.size(); ++device)
      if (leases_.store(device).is_elastic()) note_missing(device);
    reservations_.pay();
    std::vector<Granted> all = state_.arbiter.admit();
    for (const RequestId id : put_off_)
      if (auto context = reservations_.grant_of_job(id)) all.push_back(std::move(*context));
    for (Granted& granted : all) {
      note_granted(granted, now);
      if (granted.request.is_reservation())
        answer_reserved(granted.request, now);
      else if (granted.request.is_context())
        contexts_.granted(granted.request, granted.bytes.front());
      else
        begin(std::move(granted));
    }
    elastic_.update(now);
    for (DeviceIndex device = 0; device < state_.policy.devices.size(); ++device)
      changed |= advance(device, now, freed);
  }
  elastic_.note_figures();
  return freed;
}

void Growths::note_granted(const Granted& granted, TimePoint now) {
  const Request& request = granted.request;
  CommandJob* const job = state_.find_job(request.job);
  note_waited(request, now);
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const DeviceIndex device = request.parts[i].device;
    Event& event = state_.note(Event::Kind::kGranted, state_.session(request.session), now);
    event.request = request.id;
    event.device = device;
    event.bytes = granted.bytes[i];
    event.waited = now - request.asked + request.unread;
    if (job != nullptr && !request.is_reservation()) jobs_.note_lent(*job, device, now);
  }
}

// There is nothing to bring together: what is reserved is free memory, which others do not get.
void Growths::answer_reserved(const Request& request, TimePoint now) {
  jobs_.note_reserved(*state_.find_job(request.job), request.parts.front().device, now);
  places_.forget(request);
  state_.outbox.emit(AnswerGrow{request.id, Grant{}});
}

void Growths::begin(Granted granted) {
  const Request& request = granted.request;
  Session& session = state_.session(request.session);
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const Request::Part& part = request.parts[i];
    Slice& slice = session.slices.at(part.slice);
    slice.charged += granted.bytes[i];
    slice.held += granted.bytes[i];
    session.holdings[part.device].charges[Charge::kOffered] += granted.bytes[i];
    const TenantId tenant = state_.tenants.owner_of(request.tenant);
    const bool guaranteed = state_.ledger.borrowed(tenant, part.device).is_zero();
    leases_.store(part.device).want(request.id, granted.bytes[i], part.largest, guaranteed);
  }
  state_.outbox.touch(session.id);
  session.assemblies.insert(request.id);
  const RequestId id = request.id;
  const std::size_t parts = request.parts.size();
  assemblies_.emplace(id,
                      Assembly{std::move(granted), std::vector<std::optional<std::vector<Extent>>>(parts)});
}

// True: requests have joined their queues.
bool Growths::join_contexts(const Store::Progress& progress, TimePoint now) {
  bool joined = false;
  for (const RequestId id : progress.released) contexts_.released(id, now);
  for (const auto& [id, free] : progress.looked) {
    auto request = contexts_.looked(id, free, now);
    if (!request) continue;
    reservations_.give_way_to(*request);
    if (!join(std::move(*request), now)) continue;
    put_off_.push_back(id);
    joined = true;
  }
  return joined;
}

// True: the store has created bytes that were missing.
bool Growths::note_missing(DeviceIndex device) {
  const Bytes missing = leases_.store(device).missing();
  const bool found = missing < state_.ledger.missing(device);
  state_.ledger.set_missing(device, missing);
  if (found) jobs_.reserve_restored(device);
  return found;
}

// One round of physical progress; true if something changed that may allow more grants.
bool Growths::advance(DeviceIndex device, TimePoint now, std::vector<SessionId>& freed_of) {
  Store& store = leases_.store(device);
  Store::Progress progress = store.advance(now);
  const bool found = note_missing(device);
  for (auto& one : progress.assembled) assembled(device, std::move(one));
  for (const RequestId id : progress.unobtainable) give_up(id, unobtainable(device), now);
  for (const RequestId id : progress.too_many) give_up(id, too_many_extents(), now);
  const bool joined = join_contexts(progress, now);
  for (const LeaseId id : progress.quarantined) freed_of.push_back(leases_.unproved(id, now));
  for (const LeaseId id : progress.freed) leases_.freed(id, now, freed_of);
  if (!progress.jobs.empty()) state_.outbox.emit(RunJobs{device, std::move(progress.jobs)});
  for (const JobId job : progress.hurried) state_.outbox.emit(HurryJob{device, job});
  return found || joined || !progress.freed.empty() || !progress.unobtainable.empty() ||
         !progress.too_many.empty();
}

void Growths::assembled(DeviceIndex device, Store::Progress::Assembly&& one) {
  const auto found = assemblies_.find(one.request);
  const auto& parts = found->second.granted.request.parts;
  const auto part = std::ranges::find(parts, device, &Request::Part::device) - parts.begin();
  found->second.extents[static_cast<std::size_t>(part)] = std::move(one.extents);
  if (!found->second.complete()) return;
  const Assembly assembly = std::move(assemblies_.extract(found).mapped());
  const Request& request = assembly.granted.request;
  state_.session(request.session).assemblies.erase(request.id);
  places_.forget(request);
  Grant grant = leases_.offer(assembly);
  state_.outbox.emit(SendOffer{request.session, grant});
  state_.outbox.emit(AnswerGrow{request.id, std::move(grant)});
}

void Growths::give_up(RequestId id, Error why, TimePoint now) {
  if (contexts_.unobtainable(id, now)) return answer(id, std::move(why));
  auto assembly = assemblies_.extract(id);
  if (assembly.empty()) return;  // undone already, for another of its parts
  undo(assembly.mapped());
  answer(id, std::move(why));
}

Error Growths::unobtainable(DeviceIndex device) const {
  const Bytes past = state_.past_broker[device];
  return {Code::kUnavailable,
          "the driver does not give " + to_string(state_.missing(device)) + " of the pool" +
              (past.is_zero() ? "" : "; processes hold " + to_string(past) + " past the broker") +
              "; see `gpumem reconcile`"};
}

Error Growths::too_many_extents() {
  return refusal(
      Bound::kDescriptors,
      "the memory is free, but each piece of it takes a descriptor of the broker, which has no more "
      "for this: raise its limit of open files (LimitNOFILE=), or ask for fewer and larger pieces");
}

// Releases the bytes of a granted request that is not delivered.
void Growths::undo(const Assembly& assembly) {
  const Request& request = assembly.granted.request;
  Session& session = state_.session(request.session);
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const Request::Part& part = request.parts[i];
    const Bytes bytes = assembly.granted.bytes[i];
    if (assembly.extents[i])
      leases_.store(part.device).put_back(*assembly.extents[i]);
    else
      leases_.store(part.device).withdraw(request.id);
    state_.ledger.release(session.leaf, part.device, bytes, Charge::kOffered);
    session.holdings[part.device].charges[Charge::kOffered] -= bytes;
    Slice& slice = session.slices.at(part.slice);
    slice.charged -= bytes;
    slice.held -= bytes;
  }
  session.assemblies.erase(request.id);
  places_.forget(request);
  state_.outbox.touch(session.id);
}

}  // namespace gpumem::core
