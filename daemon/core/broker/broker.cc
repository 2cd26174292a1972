#include "daemon/core/broker/broker.h"

#include "base/text/printable.h"

// Events: each goes to the part that is responsible. Sessions begin and end in broker_sessions.cc, changes of
// policy are in broker_policy.cc, listings in listings.cc.

namespace gpumem::core {

namespace {

Error no_job() { return {Code::kNotFound, "the session has no job; it begins one first"}; }

}  // namespace

Broker::Broker(Policy policy) : state_(std::move(policy)) {
  const auto& devices = state_.policy.devices;
  for (DeviceIndex i = 0; i < devices.size(); ++i)
    state_.ledger.set_lending(i, devices[i].reclaim.lend_guarantees);
  state_.tenants.put_in_force(state_.tenants.rules_under(state_.policy, {}), state_.policy.tenants);
}

// ---- Slices ----

Result<Slice> Broker::open_slice(SessionId id, const OpenSlice& request) {
  if (auto right = check(request); !right) return right.error();
  auto session = state_.live(id);
  if (!session) return session.error();
  if (!state_.stopped_lending.empty()) return Error{Code::kUnavailable, state_.stopped_lending};
  const auto index = state_.find_device(request.device);
  if (!index) return index.error();
  const auto size = leases_.check_slice(**session, *index, request.limit);
  if (!size) return size.error();
  if (auto room = outside_.check_context(**session, *index); !room) return room.error();
  outside_.begin_context(**session, *index);
  reservations_.pay();
  return leases_.open_slice(**session, *index, *size, request);
}

Result<void> Broker::close_slice(SessionId id, const CloseSlice& request, TimePoint now) {
  auto session = state_.live(id);
  if (!session) return session.error();
  auto closed = leases_.close_slice(**session, request.slice);
  if (closed) settle(now);
  return closed;
}

// ---- Memory ----

std::optional<RequestId> Broker::place_kept(SessionId id, const Grow& request, TimePoint now) {
  const auto session = state_.borrower(id);
  if (!session) return std::nullopt;
  return growths_.place_kept(**session, request.parts, now);
}

void Broker::grow(RequestId id, SessionId session_id, const Grow& request, TimePoint now) {
  if (auto right = check(request); !right) return growths_.answer(id, right.error());
  const auto session = state_.borrower(session_id);
  if (!session) return growths_.answer(id, session.error());
  if (!growths_.ask(id, **session, request, now)) return;
  grant(now);
  growths_.wait_or_refuse(id, now);
  settle(now);
}

// ---- Jobs ----

Result<JobBegun> Broker::begin_job(SessionId id, const BeginJob& request, TimePoint now) {
  if (auto right = check(request); !right) return right.error();
  const auto session = state_.borrower(id);
  if (!session) return session.error();
  return settle(now, jobs_.begin(**session, request, now));
}

void Broker::call_off_job(SessionId id, TimePoint now) {
  jobs_.lose_owner(id, now);
  settle(now);
}

std::optional<RequestId> Broker::place_kept(SessionId id, const ReserveForJob& request, TimePoint now) {
  const auto session = state_.borrower(id);
  const CommandJob* const job = jobs_.owned_by(id);
  if (!session || job == nullptr) return std::nullopt;
  return growths_.place_kept(**session, *job, request, now);
}

void Broker::reserve_for_job(RequestId id, SessionId session_id, const ReserveForJob& request,
                             TimePoint now) {
  if (auto right = check(request); !right) return growths_.answer(id, right.error());
  const auto session = state_.borrower(session_id);
  if (!session) return growths_.answer(id, session.error());
  const CommandJob* const job = jobs_.owned_by(session_id);
  if (job == nullptr) return growths_.answer(id, no_job());
  if (!growths_.ask_reservation(id, **session, *job, request, now)) return;
  grant(now);
  growths_.wait_or_refuse(id, now);
  settle(now);
}

void Broker::announce_context(RequestId id, SessionId session_id, const AnnounceContext& request,
                              TimePoint now) {
  const auto session = state_.borrower(session_id);
  if (!session) return growths_.answer(id, session.error());
  const auto index = state_.find_device(request.device);
  if (!index) return growths_.answer(id, index.error());
  if (state_.policy.devices[*index].is_host())
    return growths_.answer(id, Error{Code::kInvalidArgument, "the host store has no contexts"});
  growths_.ask_context(id, **session, *index, request.wait, now);
  settle(now);
}

void Broker::context_done(SessionId id, const ContextDone& request, TimePoint now) {
  const auto session = state_.live(id);
  const auto index = state_.find_device(request.device);
  if (!session || !index || state_.policy.devices[*index].is_host()) return;
  contexts_.done(**session, *index, request.outcome, now);
  settle(now);
}

Result<JobAccount> Broker::job_account(SessionId id) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  const CommandJob* const job = jobs_.owned_by(id);
  if (job == nullptr) return no_job();
  return jobs_.account(*job);
}

void Broker::cancel(RequestId id, TimePoint now) {
  sharer_.cancel(id);
  growths_.cancel(id, now);
  settle(now);
}

void Broker::abandon(GrantId grant, TimePoint now) {
  leases_.abandon(grant, now);
  settle(now);
}

Result<void> Broker::give_back(SessionId id, const Return& request, TimePoint now) {
  auto session = state_.live(id);
  if (!session) return session.error();
  const auto of = (*session)->slices.find(request.slice);
  if (of != (*session)->slices.end()) reclaimer_.note_pinned(**session, of->second.device);
  auto given = leases_.give_back(**session, request.slice, request.leases, now);
  if (given) settle(now);
  return given;
}

Result<void> Broker::charge(SessionId id, const DeclareCharge& request, TimePoint now) {
  if (auto named = check_device_name(request.device); !named) return named;
  auto session = state_.live(id);
  if (!session) return session.error();
  const auto index = state_.find_device(request.device);
  if (!index) return index.error();
  const Bytes more = request.bytes.minus((*session)->declared(*index));
  auto charged = outside_.declare(**session, *index, request.bytes, request.is_bounded);
  CommandJob* const job = state_.find_job((*session)->job);
  if (charged) {
    if (job != nullptr) jobs_.note_level(*job, *index);
    settle(now);
  } else if (request.is_bounded && !request.is_probe && charged.error().code == Code::kResourceExhausted) {
    Event& event = state_.note(Event::Kind::kDenied, **session, now);
    event.device = *index;
    event.bytes = more;
    event.words = to_string(more) + " more may not be pinned: " + charged.error().message;
    ++(*session)->denied;
    if (job != nullptr) jobs_.note_denied(*job, {}, true);
  }
  return charged;
}

Result<void> Broker::spent(SessionId id, const Spent& request, TimePoint now) {
  if (auto named = check_device_name(request.device); !named) return named;
  const auto index = state_.find_device(request.device);
  if (!index) return Error{Code::kNotFound, "there is no device " + request.device + "; see `gpumem status`"};
  auto session = state_.live(id);
  if (session) reclaimer_.spent(**session, *index, now);
  return {};
}

// ---- Memory that several sessions use ----

Result<HandleExported> Broker::export_handle(SessionId id, const ExportHandle& request,
                                             const HandleBytes& handle, TimePoint now) {
  auto session = state_.live(id);
  if (!session) return session.error();
  if (auto made = exports_.export_handle(**session, request, handle, now); !made) return made.error();
  return HandleExported{handle, request.expires(now)};
}

Result<std::vector<FabricPart>> Broker::export_fabric(SessionId id, const ExportHandle& request,
                                                      const FabricHandleOf& handle_of, TimePoint now) {
  if (request.life != Duration::zero() || request.uses != 0) {
    return Error{Code::kInvalidArgument,
                 "a fabric handle cannot be taken back: leave out how long and how often it is good"};
  }
  auto session = state_.live(id);
  if (!session) return session.error();
  const auto of = (*session)->slices.find(request.slice);
  // Memory under a forced reclaim must stay returnable: other borrowers would be asked for it too late.
  if (of != (*session)->slices.end() && reclaimer_.presses(**session, of->second.device))
    return Error{Code::kUnavailable, "the memory is being asked back; try again when that is over"};
  auto parts = exports_.export_fabric(**session, request, handle_of, now);
  if (!parts) return parts;
  reclaimer_.replan();
  return settle(now, std::move(parts));
}

Result<void> Broker::revoke_handle(SessionId id, const RevokeHandle& request) {
  auto session = state_.live(id);
  if (!session) return session.error();
  return exports_.revoke_handle(**session, request.handle);
}

Result<Imported> Broker::import_handle(SessionId session, const ImportHandle& request, TimePoint now) {
  return settle(now, sharer_.import_handle(session, request.handle, now));
}

Result<void> Broker::release_import(SessionId id, const ReleaseImport& request, TimePoint now) {
  auto session = state_.live(id);
  if (!session) return session.error();
  for (const auto& [device, asked] : (*session)->asked) reclaimer_.note_pinned(**session, device);
  auto released = leases_.release_import(**session, request.import, now);
  if (!released) return released;
  reclaimer_.replan();
  return settle(now, released);
}

Result<RegionId> Broker::publish(SessionId session, const Publish& request, TimePoint now) {
  if (auto right = check(request); !right) return right.error();
  return serve(now, sharer_.publish(session, request, now));
}

Result<MappedRegion> Broker::map_region(SessionId session, const MapRegion& request, TimePoint now) {
  if (auto right = check(request); !right) return right.error();
  return settle(now, sharer_.map_region(session, request, now));
}

void Broker::take_back(SessionId session, const MappedRegion& mapped, TimePoint now) {
  if (mapped.adopted) published_.keep_again(mapped.version, *mapped.adopted);
  static_cast<void>(release_import(session, {mapped.imported.id}, now));
}

void Broker::map_or_wait(RequestId id, SessionId session, const MapRegion& request, TimePoint now) {
  sharer_.map_or_wait(id, session, request, now);
  settle(now);
}

Result<void> Broker::release_reservation(SessionId session, const ReleaseReservation& request,
                                         TimePoint now) {
  return serve(now, sharer_.release_reservation(session, request.reservation));
}

void Broker::call_off_reservation(SessionId session, std::uint64_t number, TimePoint now) {
  sharer_.call_off_reservation(session, number);
  serve(now);
}

Result<void> Broker::remove_region(SessionId session, const RemoveRegion& request, TimePoint now) {
  if (auto right = check(request); !right) return right;
  return settle(now, sharer_.remove_region(session, request, now));
}

Result<void> Broker::remove_region_of(const std::string& owner, const RemoveRegion& request, TimePoint now) {
  if (auto right = check(request); !right) return right;
  if (auto tenant = check_label(owner); !tenant) return tenant;
  return settle(now, published_.remove_region_of(owner, request.name, request.version, now));
}

// ---- What the host reports ----

void Broker::begin_observation(DeviceIndex device) {
  unmanaged_.begin_observation(device, leases_.store(device).ended());
  contexts_.begin_observation(device);
}

void Broker::observe(const Observation& observation, TimePoint now) {
  const Bytes hindrance = state_.hinders_proofs[observation.device];
  unmanaged_.observe(observation, leases_.store(observation.device).started(), now);
  if (state_.hinders_proofs[observation.device] != hindrance) reclaimer_.replan();
  const Bytes contexts = unmanaged_.view(observation.device).contexts;
  state_.contexts_seen[observation.device] = contexts;
  leases_.observed(observation.device);
  if (observation.problem.empty()) contexts_.observed(observation.device, now);
  const DevicePolicy& device = state_.policy.devices[observation.device];
  Store& store = leases_.store(observation.device);
  store.keep_free(kept_for_contexts(device, contexts), kept_for_others(device));
  if (observation.problem.empty()) store.note_free(device.total.minus(observation.used), now);
  settle(now);
}

// All that has come is granted before any request that was put off is refused. A refusal makes room for
// others, so settle() grants once more.
void Broker::job_done(const JobResult& result, TimePoint now) {
  leases_.store(result.device).finish(result, now);
  grant(now);
  growths_.wait_or_refuse_put_off(now);
  settle(now);
}

void Broker::tick(TimePoint now) {
  state_.arbiter.age(now);
  growths_.refuse_expired(now);
  contexts_.tick(now);
  published_.drop_expired(now);
  sharer_.tick(now);
  reclaimer_.tick(now);
  unmanaged_.tick(now);
  serve(now);
  sharer_.refuse_expired(now);
}

std::optional<TimePoint> Broker::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto one :
       {state_.arbiter.next_deadline(), contexts_.next_deadline(), elastic_.next_deadline(),
        reclaimer_.next_deadline(), unmanaged_.next_deadline(), reservations_.next_deadline(),
        leases_.next_deadline(), regions_.next_expiry(), sharer_.next_deadline()}) {
    if (one && (!next || *one < *next)) next = one;
  }
  return next;
}

void Broker::drain() {
  state_.draining = true;
  growths_.leave_to_next();
  sharer_.refuse_all({Code::kUnavailable, "the broker is stopping"});
}

// ---- What follows ----

void Broker::settle(TimePoint now) {
  for (;;) {
    grant(now);
    const std::vector<RequestId> refused = reclaimer_.update(now);
    const bool gave_up = published_.give_up_kept(now);
    if (refused.empty() && !gave_up) break;
    for (const RequestId id : refused) growths_.refuse_waiting(id, now);  // which makes room for others
  }
  usage_.sync(now);
}

void Broker::serve(TimePoint now) {
  settle(now);
  if (sharer_.serve_waits(now)) settle(now);
}

void Broker::grant(TimePoint now) {
  do progress(now);
  while (reservations_.give_way(now));
}

void Broker::progress(TimePoint now) {
  published_.note_left(now);
  for (auto freed = growths_.progress(now); !freed.empty(); freed = growths_.progress(now)) {
    for (const SessionId id : freed) forget_if_done(id, now);
  }
  for (const SessionId id : std::vector(state_.detached_sessions.begin(), state_.detached_sessions.end()))
    forget_if_done(id, now);
}

}  // namespace gpumem::core
