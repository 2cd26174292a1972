#include "tests/fuzz/broker_host.h"

#include <algorithm>
#include <utility>

#include "tests/fuzz/require.h"

namespace gpumem::fuzz {
namespace {

using lane::Kind;

// The kinds that are answered.
bool is_answered(Kind kind) {
  return (kind >= Kind::kOpenSlice && kind <= Kind::kPing) ||
         (kind >= Kind::kExportHandle && kind <= Kind::kExplain) || kind == Kind::kRevokeHandle ||
         (kind >= Kind::kPublish && kind <= Kind::kReleaseReservation) ||
         (kind >= Kind::kBeginJob && kind <= Kind::kDescribeJob);
}

template <class Body>
Body whole(const lane::Incoming& frame) {
  auto body = lane::body_of<Body>(frame);
  require(body.has_value(), "an answer of the broker is a whole frame of its kind");
  return *body;
}

}  // namespace

BrokerHost::BrokerHost(const core::Policy& policy)
    : CoreWorld(policy, core::totals_of(policy), core::TimePoint(std::chrono::hours(1))),
      calls_(*this, *this) {
  driver.fails = [this](const core::Extent&) { return failures_ != 0 && failures_-- != 0; };
  pass({});
}

SessionId BrokerHost::connect(std::uint32_t uid) {
  SessionId id;
  run([&](core::Broker& broker, core::TimePoint now) {
    const core::Peer peer{.pid = 1000 + uid, .uid = uid, .gids = {uid}, .command = "fuzz"};
    const auto jobs = broker.jobs();  // it joins the latest, if its user made that
    const auto opened =
        broker.open_session(peer, "fuzz", now, jobs.empty() ? core::CommandJobId{} : jobs.back().id);
    if (!opened) return;
    id = *opened;
    sessions_.emplace(id, Session{});
  });
  return id;
}

bool BrokerHost::receive(SessionId session, const std::string& packet) {
  bool in_order = true;
  run([&](core::Broker& broker, core::TimePoint now) {
    const auto frame = lane::parse(packet);
    if (frame && is_answered(frame->header.kind)) {
      Session& told = sessions_.at(session);
      ++told.due[frame->header.request];
      told.asked[frame->header.request] = packet;
    }
    in_order = calls_.receive(session, packet, broker, now).has_value();
  });
  return in_order;
}

void BrokerHost::end(SessionId session, core::SessionEnd how) {
  sessions_.erase(session);
  run([&](core::Broker& broker, core::TimePoint now) {
    end_requests_of(session);
    broker.session_ended(session, how, now);
  });
}

void BrokerHost::exited(SessionId session) {
  run([&](core::Broker& broker, core::TimePoint now) { broker.exited(session, now); });
}

void BrokerHost::pass(core::Duration time) {
  now += time;
  run([](core::Broker& broker, core::TimePoint now) { broker.tick(now); });
}

void BrokerHost::come_to_rest() {
  failures_ = 0;
  for (int i = 0; i < 10'000; ++i) {
    if (!broker.next_deadline()) return;
    pass(until_next_deadline());
  }
  require(false, "there is an end to what is to be done");
}

void BrokerHost::require_nothing_left() {
  come_to_rest();
  for (;;) {
    const core::RegionPage page = broker.regions({"", true}, "", now);
    if (page.regions.empty()) break;
    const core::RegionView& one = page.regions.front();
    require(one.region.kept, "a region without a process is one that is kept");
    run([&](core::Broker& broker, core::TimePoint now) {
      require(bool{broker.remove_region_of(one.owner, {one.region.name, one.region.id.value}, now)},
              "an administrator can remove every region");
    });
  }
  come_to_rest();
  require(broker.sessions().empty(), "a session that is over is forgotten");
  require(broker.jobs().empty(), "a job ends with its last session");
  require(broker.settled(), "nothing is under way");
  for (const core::DeviceView& device : broker.devices()) {
    require(device.charges.total().is_zero() && device.outside.is_zero(), "nobody is charged");
    require(device.free == device.policy.pool, "everything is free");
  }
}

Result<SessionId> BrokerHost::open_session(int connection, std::string label, core::CommandJobId job,
                                           std::shared_ptr<core::SessionHolder> holder) {
  const auto uid = static_cast<std::uint32_t>(connection);
  const core::Peer peer{.pid = 1000 + uid, .uid = uid, .maps = false, .gids = {uid}, .command = "fuzz"};
  const auto opened = broker.open_session(peer, std::move(label), now, job);
  if (opened) holders_.emplace(*opened, std::move(holder));
  return opened;
}

void BrokerHost::end_session(SessionId session) {
  holders_.erase(session);
  run([&](core::Broker& broker, core::TimePoint now) {
    end_requests_of(session);
    broker.session_ended(session, core::SessionEnd::kReleased, now);
  });
}

RequestId BrokerHost::grow(SessionId session, const core::Grow& request, GrowAnswer answer) {
  const RequestId id = request_ids_.next();
  pending_.emplace(id, Pending{session, std::move(answer)});
  run([&](core::Broker& broker, core::TimePoint now) { broker.grow(id, session, request, now); });
  return id;
}

RequestId BrokerHost::reserve_for_job(SessionId session, const core::ReserveForJob& request,
                                      GrowAnswer answer) {
  const RequestId id = request_ids_.next();
  pending_.emplace(id, Pending{session, std::move(answer)});
  run([&](core::Broker& broker, core::TimePoint now) { broker.reserve_for_job(id, session, request, now); });
  return id;
}

RequestId BrokerHost::announce_context(SessionId session, const core::AnnounceContext& request,
                                       GrowAnswer answer) {
  const RequestId id = request_ids_.next();
  pending_.emplace(id, Pending{session, std::move(answer)});
  run([&](core::Broker& broker, core::TimePoint now) { broker.announce_context(id, session, request, now); });
  return id;
}

RequestId BrokerHost::map_region(SessionId session, const core::MapRegion& request, MapAnswer answer) {
  const RequestId id = request_ids_.next();
  pending_maps_.emplace(id, std::pair(session, std::move(answer)));
  run([&](core::Broker& broker, core::TimePoint now) { broker.map_or_wait(id, session, request, now); });
  return id;
}

void BrokerHost::cancel(RequestId request) {
  run([&](core::Broker& broker, core::TimePoint now) { broker.cancel(request, now); });
  auto pending = pending_.extract(request);
  if (!pending.empty()) pending.mapped().answer(core::GrowFailure{{Code::kCancelled, "withdrawn"}, {}});
  auto map = pending_maps_.extract(request);
  if (!map.empty()) map.mapped().second(Error{Code::kCancelled, "withdrawn"});
}

void BrokerHost::end_requests_of(SessionId session) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (it->second.session != session) {
      ++it;
      continue;
    }
    const GrowAnswer answer = std::move(it->second.answer);
    it = pending_.erase(it);
    answer(core::GrowFailure{{Code::kCancelled, "the session has ended"}, {}});
  }
}

// As the host does: everything that follows, then the answers. An answer that finds its lane broken ends a
// session, which is work of its own.
void BrokerHost::run(const Work& work) {
  if (running_) return work(broker, now);
  running_ = true;
  work(broker, now);
  do_effects();
  running_ = false;
  broker.outbox().take_events();
  broker.outbox().take_touched();
  for (const auto& done : std::exchange(after_, {})) done();
  check();
}

void BrokerHost::do_effects() {
  take_effects(*this);
  while (has_jobs()) {
    for (core::DeviceIndex device = 0; device < jobs.size(); ++device)
      if (!jobs[device].empty()) broker.job_done(run_next_job(device), now);
    take_effects(*this);
  }
}

void BrokerHost::take(core::AnswerGrow& effect) {
  auto pending = pending_.extract(effect.request);
  if (pending.empty()) return;
  after([tell = std::move(pending.mapped().answer), result = std::move(effect.answer)] { tell(result); });
}

void BrokerHost::take(core::AnswerMap& effect) {
  auto map = pending_maps_.extract(effect.request);
  if (map.empty()) return;
  after([tell = std::move(map.mapped().second), result = std::move(effect.answer)] { tell(result); });
}

void BrokerHost::press(SessionId session) {
  const auto holder = holders_.find(session);
  if (holder != holders_.end() && broker.knows(session)) holder->second->pressed(broker.figures(session));
}

void BrokerHost::send(SessionId session, std::string_view bytes, const core::SentExtents& extents) {
  if (!sessions_.contains(session)) return;
  if (breaks_ && breaks_->first-- == 0) {
    const core::SessionEnd how = std::exchange(breaks_, std::nullopt)->second;
    return end(session, how);
  }
  require(bytes.size() <= lane::kMostBytes, "a frame is not too long");
  const auto frame = lane::parse(bytes);
  require(frame.has_value(), "what the broker sends is a frame");
  for (const ExtentId extent : extents.ids) {
    require(driver.has_handle(extent), "only extents that exist are sent");
    const bool is_new = lent_.insert(extent).second;
    require(is_new == (frame->header.kind == Kind::kGranted),
            "an extent is lent once, and imported after that");
  }
  note_answer(sessions_.at(session), *frame, extents.ids);
}

void BrokerHost::note_answer(Session& session, const lane::Incoming& frame,
                             std::span<const ExtentId> extents) {
  const std::uint64_t number = frame.header.request;
  const auto due = session.due.find(number);
  require(due != session.due.end(), "only what was asked is answered, and once");
  const std::string request = session.asked.at(number);
  bool last = true;
  switch (frame.header.kind) {
    case Kind::kWaiting:
      whole<lane::Waiting>(frame);
      last = false;
      break;
    case Kind::kGranted: {
      const auto granted = whole<lane::Granted>(frame);
      note_grant(session, granted, extents);
      last = granted.missing == 0;
      break;
    }
    case Kind::kSliceOpened: {
      const auto opened = whole<lane::SliceOpened>(frame);
      require(session.slices.emplace(opened.slice, opened.limit).second, "a slice's number comes once");
      break;
    }
    case Kind::kHandleExported: handles_.push_back(whole<lane::HandleExported>(frame).handle); break;
    case Kind::kImported: {
      const auto imported = whole<lane::Imported>(frame);
      require(imported.count == extents.size() && imported.count != 0,
              "each extent comes with its descriptor");
      session.imports.push_back(imported.import);
      break;
    }
    case Kind::kPublished: {
      const std::uint64_t version = whole<lane::Published>(frame).version;
      require(version > std::exchange(region_, version), "a region's version is higher than those before");
      break;
    }
    case Kind::kRegionMapped: {
      const auto mapped = whole<lane::RegionMapped>(frame);
      require(mapped.count == extents.size() && mapped.count != 0,
              "each extent of a region comes with its descriptor");
      require(mapped.layout <= mapped.bytes, "a layout is in its region");
      session.imports.push_back(mapped.import);
      break;
    }
    case Kind::kNameReserved: {
      const std::uint64_t number = whole<lane::NameReserved>(frame).reservation;
      require(number > std::exchange(reservation_, number), "a reservation's number comes once");
      break;
    }
    case Kind::kDescribed: {
      const auto described = whole<lane::Described>(frame);
      last = described.missing == 0;
      break;
    }
    case Kind::kExplained: whole<lane::Explained>(frame); break;
    case Kind::kJobBegun: whole<lane::JobBegun>(frame); break;
    case Kind::kJobDescribed: whole<lane::JobDescribed>(frame); break;
    case Kind::kFailed: require(whole<lane::Failed>(frame).code != 0, "a failure has a code"); break;
    default: whole<lane::Done>(frame); note_done(session, request);
  }
  if (last && --due->second == 0) session.due.erase(due);
}

void BrokerHost::note_grant(Session& session, const lane::Granted& granted,
                            std::span<const ExtentId> extents) {
  require(granted.count == extents.size(), "each lease comes with its extent");
  if (session.grants.empty() || session.grants.back() != granted.grant)
    session.grants.push_back(granted.grant);
  for (std::size_t i = 0; i < granted.count; ++i) {
    const lane::GrantedLease& lease = granted.leases[i];
    require(lease.size != 0, "a lease is of some memory");
    require(session.slices.contains(lease.slice), "a grant's leases are the session's own slices'");
    require(leases_.insert(lease.lease).second, "a lease's number comes once");
    session.leases[lease.slice][lease.lease] = lease.size;
  }
}

// Requests of one number may be of several kinds: then what was done is not known from the answer.
void BrokerHost::note_done(Session& session, const std::string& request) {
  const auto frame = lane::parse(request);
  if (const auto back = lane::body_of<lane::Return>(*frame)) {
    for (std::size_t i = 0; i < back->count; ++i) session.leases[back->slice].erase(back->leases[i]);
  } else if (const auto closed = lane::body_of<lane::CloseSlice>(*frame)) {
    session.slices.erase(closed->slice);
  } else if (const auto released = lane::body_of<lane::ReleaseImport>(*frame)) {
    require(std::erase(session.imports, released->import) == 1, "an import is released once");
  } else if (const auto revoked = lane::body_of<lane::RevokeHandle>(*frame)) {
    require(std::erase(handles_, revoked->handle) == 1, "a handle is revoked once");
  }
}

void BrokerHost::check() const {
  const auto devices = broker.devices();
  std::vector<Bytes> of_tenants(devices.size());
  for (const core::TenantView& tenant : broker.tenants())
    if (tenant.parent.empty()) of_tenants[tenant.device] += tenant.charges.total();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const core::DeviceView& device = devices[i];
    require(of_tenants[i] == device.charges.total(), "what tenants are charged is what the device lends");
    require(device.charges.total() <= device.policy.pool, "no more is lent than there is");
    if (device.missing.is_zero())
      require(device.charges.total() + device.free == device.policy.pool, "what is not charged is free");
  }
  std::uint64_t told = 0, charged = 0;
  for (const core::SessionView& view : broker.sessions()) {
    const auto known = sessions_.find(view.id);
    if (known == sessions_.end()) continue;
    require(!view.ended, "a session ends with its lane, not before");
    for (const core::SliceView& slice : view.slices) {
      std::uint64_t leases = 0;
      const auto held = known->second.leases.find(slice.id.value);
      if (held != known->second.leases.end())
        for (const auto& [lease, size] : held->second) leases += size;
      require(leases <= slice.charged.count, "what a session was granted is charged to its slice");
      told += leases;
      charged += slice.charged.count;
    }
  }
  require(told <= charged, "no lease is anybody else's");
}

core::Policy some_policy(Input& input) {
  core::Policy policy;
  const std::uint8_t kind = input.byte();
  const core::ReclaimPolicy reclaim{.lend_guarantees = (kind & 1) != 0,
                                    .deadline = std::chrono::seconds(2),
                                    .escalation = static_cast<core::Escalation>(kind / 2 % 3)};
  const Bytes pools[] = {mebibytes(16), mebibytes(512)};
  for (std::size_t i = 0; i < std::size(pools); ++i) {
    policy.devices.push_back({.uuid = "GPU-" + std::to_string(i),
                              .name = "fuzz",
                              .total = pools[i] + mebibytes(64),
                              .pool = pools[i],
                              .granularity = mebibytes(2),
                              .reclaim = reclaim,
                              .context_overhead = (kind & 8) != 0 ? mebibytes(2) : Bytes{}});
  }
  const std::vector<core::Quota> guaranteed{{mebibytes(6), pools[0]}, {mebibytes(64), pools[1]}};
  const std::vector<core::Quota> limited{{{}, mebibytes(12)}, {{}, mebibytes(400)}};
  policy.tenants = {{.name = "one", .uid = 1, .gid = {}, .quotas = guaranteed},
                    {.name = "two", .uid = 2, .gid = {}, .quotas = limited}};
  policy.max_sessions = 8;
  policy.max_slices_per_session = 4;
  policy.max_requests_per_session = 4;
  require(core::check(policy).has_value(), "the policy is one");
  return policy;
}

}  // namespace gpumem::fuzz
