#include "daemon/lane/session_calls.h"

#include <vector>

#include "base/crash_point.h"

namespace gpumem::lane {

Error SessionCalls::broken(std::string_view what) { return {Code::kInvalidArgument, std::string(what)}; }

bool SessionCalls::is_late(const Call& call) {
  if (call.expired)
    answer_later(
        call, failed_with({Code::kDeadlineExceeded, "the broker came to the call only after its deadline"}));
  return call.expired;
}

Result<void> SessionCalls::receive(SessionId session, std::string_view packet, core::Broker& broker,
                                   core::TimePoint now) {
  auto frame = parse(packet);
  if (!frame) return frame.error();
  const std::uint64_t deadline = frame->header.deadline;
  const Call call{session, frame->header.request, broker, now,
                  deadline != 0 && deadline < to_nanoseconds(now)};
  switch (frame->header.kind) {
    case Kind::kOpenSlice: return understand<OpenSlice>(call, *frame);
    case Kind::kCloseSlice: return understand<CloseSlice>(call, *frame);
    case Kind::kGrow: return understand<Grow>(call, *frame);
    case Kind::kReturn: return understand<Return>(call, *frame);
    case Kind::kExportHandle: return understand<ExportHandle>(call, *frame);
    case Kind::kImportHandle: return understand<ImportHandle>(call, *frame);
    case Kind::kRevokeHandle: return understand<RevokeHandle>(call, *frame);
    case Kind::kPublish: return understand<Publish>(call, *frame);
    case Kind::kMapRegion: return understand<MapRegion>(call, *frame);
    case Kind::kMapOrReserve: return understand<MapOrReserve>(call, *frame);
    case Kind::kReleaseReservation: return understand<ReleaseReservation>(call, *frame);
    case Kind::kRemoveRegion: return understand<RemoveRegion>(call, *frame);
    case Kind::kReleaseImport: return understand<ReleaseImport>(call, *frame);
    case Kind::kCharge: return understand<Charge>(call, *frame);
    case Kind::kPing: return understand<Ping>(call, *frame);
    case Kind::kCancel: return understand<Cancel>(call, *frame);
    case Kind::kAccept: return understand<Accept>(call, *frame);
    case Kind::kSpent: return understand<Spent>(call, *frame);
    case Kind::kDescribe: return understand<Describe>(call, *frame);
    case Kind::kExplain: return understand<Explain>(call, *frame);
    case Kind::kBeginJob: return understand<BeginJob>(call, *frame);
    case Kind::kReserveForJob: return understand<ReserveForJob>(call, *frame);
    case Kind::kAnnounceContext: return understand<AnnounceContext>(call, *frame);
    case Kind::kContextDone: return understand<ContextDone>(call, *frame);
    case Kind::kDescribeJob: return understand<DescribeJob>(call, *frame);
    default: return broken("its frame is of an unknown kind");
  }
}

template <class Body>
Result<void> SessionCalls::understand(const Call& call, const Incoming& frame) {
  auto body = body_of<Body>(frame);
  if (!body) return body.error();
  return take(call, *body);
}

Result<void> SessionCalls::take(const Call& call, const OpenSlice& body) {
  if (is_late(call)) return {};
  crash_at(CrashPoint::kSliceRead);
  if (body.is_private > 1) return broken("a slice is private (1) or not (0)");
  const auto opened = core::open_slice(executor_, call.broker, call.session,
                                       {device_at(call.broker, body.device),
                                        {body.limit},
                                        std::string(body.label.view()),
                                        body.is_private == 1},
                                       call.now);
  crash_at(CrashPoint::kSliceOpened);
  answer_with_body(call, opened);
  return {};
}

Result<void> SessionCalls::take(const Call& call, const CloseSlice& body) {
  crash_at(CrashPoint::kSliceCloseRead);
  answer_later(call, call.broker.close_slice(call.session, {SliceId{body.slice}}, call.now));
  crash_at(CrashPoint::kSliceClosed);
  return {};
}

Result<void> SessionCalls::take(const Call& call, const Return& body) {
  crash_at(CrashPoint::kReturnRead);
  core::after_regions(executor_, call.broker, call.session, to_request(body), call.now,
                      [this, session = call.session, number = call.number](
                          const core::Return& request, core::Broker& broker, core::TimePoint now) {
                        answer_later({session, number, broker, now}, broker.give_back(session, request, now));
                        crash_at(CrashPoint::kReturnTaken);
                      });
  return {};
}

Result<void> SessionCalls::take(const Call& call, const ExportHandle& body) {
  if (is_late(call)) return {};
  crash_at(CrashPoint::kExportRead);
  answer_with_body(call,
                   call.broker.export_handle(call.session, to_request(body), core::new_handle(), call.now));
  crash_at(CrashPoint::kExported);
  return {};
}

Result<void> SessionCalls::take(const Call& call, const ImportHandle& body) {
  if (!may_import(call)) return {};
  crash_at(CrashPoint::kImportRead);
  const auto imported = core::import_handle(executor_, call.broker, call.session, {body.handle}, call.now);
  crash_at(CrashPoint::kImportDecided);
  if (imported)
    answer_import(call, to_body(*imported), *imported, CrashPoint::kImportSent);
  else
    answer_later(call, failed_with(imported.error()));
  return {};
}

core::SentExtents SessionCalls::extents_of(const core::Imported& imported) {
  core::SentExtents extents{.ids = {}, .is_read_only = imported.is_read_only};
  for (const auto& [lease, extent] : imported.leases) extents.ids.push_back(extent.id);
  return extents;
}

// A handle and a region can be imported often: unread answers would use up descriptors that all sessions
// need.
bool SessionCalls::may_import(const Call& call) {
  if (is_late(call)) return false;
  if (!sender_.is_behind(call.session)) return true;
  answer_later(call, failed_with({Code::kUnavailable, "many answers are unread; read them and try again"}));
  return false;
}

Result<void> SessionCalls::take(const Call& call, const RevokeHandle& body) {
  answer_later(call, call.broker.revoke_handle(call.session, {body.handle}));
  return {};
}

Result<void> SessionCalls::take(const Call& call, const ReleaseImport& body) {
  crash_at(CrashPoint::kReleaseRead);
  core::after_regions(
      executor_, call.broker, call.session, core::ReleaseImport{core::ImportId{body.import}}, call.now,
      [this, session = call.session, number = call.number](const core::ReleaseImport& request,
                                                           core::Broker& broker, core::TimePoint now) {
        answer_later({session, number, broker, now}, broker.release_import(session, request, now));
        crash_at(CrashPoint::kReleased);
      });
  return {};
}

Result<void> SessionCalls::take(const Call& call, const Charge& body) {
  const bool is_bounded = (body.flags & Charge::kBounded) != 0;
  const bool is_probe = (body.flags & Charge::kProbe) != 0;
  answer_later(
      call,
      call.broker.charge(
          call.session, {device_at(call.broker, body.device), {body.bytes}, is_bounded, is_probe}, call.now));
  return {};
}

Result<void> SessionCalls::take(const Call& call, const Ping&) {
  answer_later(call, Result<void>());
  return {};
}

Result<void> SessionCalls::take(const Call& call, const Grow& body) {
  if (is_late(call)) return {};
  crash_at(CrashPoint::kGrowRead);
  return begin_growth(call,
                      [&](auto answer) { return executor_.grow(call.session, to_request(body), answer); });
}

template <class Ask>
Result<void> SessionCalls::begin_growth(const Call& call, Ask ask) {
  const auto [growth, is_new] = growths_.try_emplace({call.session, call.number});
  if (!is_new) return broken("two growths at once have one number");
  const RequestId id = ask([this, session = call.session, number = call.number](const auto& answer) {
    answer_growth(session, number, answer);
  });
  if (!id) return {};  // answered, and gone from the growths under way
  growth->second = id;
  tell_of_waiting(call);
  return {};
}

Result<void> SessionCalls::take(const Call& call, const BeginJob& body) {
  if (is_late(call)) return {};
  answer_with_body(call, core::begin_job(executor_, call.broker, call.session, to_request(body), call.now));
  return {};
}

Result<void> SessionCalls::take(const Call& call, const ReserveForJob& body) {
  if (is_late(call)) return {};
  const auto request = to_request(body, device_at(call.broker, body.device));
  return begin_growth(call,
                      [&](auto answer) { return executor_.reserve_for_job(call.session, request, answer); });
}

Result<void> SessionCalls::take(const Call& call, const AnnounceContext& body) {
  if (is_late(call)) return {};
  const auto request = to_request(body, device_at(call.broker, body.device));
  return begin_growth(call,
                      [&](auto answer) { return executor_.announce_context(call.session, request, answer); });
}

Result<void> SessionCalls::take(const Call& call, const ContextDone& body) {
  using Outcome = core::ContextDone::Outcome;
  static_assert(ContextDone::kAttempts == core::ContextDone::kAttempts);
  if (body.outcome > static_cast<std::uint64_t>(Outcome::kOutOfMemory))
    return broken("a context has come to what is not known");
  call.broker.context_done(
      call.session, {device_at(call.broker, body.device), static_cast<Outcome>(body.outcome)}, call.now);
  return {};
}

Result<void> SessionCalls::take(const Call& call, const DescribeJob&) {
  answer_with_body(call, call.broker.job_account(call.session));
  return {};
}

Result<void> SessionCalls::take(const Call& call, const Cancel& body) {
  const auto growth = growths_.find({call.session, body.growth});
  if (growth != growths_.end()) executor_.cancel(RequestId(growth->second));
  const auto map = maps_.find({call.session, body.growth});
  if (map != maps_.end()) executor_.cancel(RequestId(map->second));
  call.broker.call_off_reservation(call.session, body.growth, call.now);
  return {};
}

Result<void> SessionCalls::take(const Call& call, const Accept& body) {
  // What was given back before it was accepted is not offered any more; a made-up grant changes as little.
  crash_at(CrashPoint::kGrowAcceptRead);
  (void)call.broker.accept(call.session, GrantId{body.grant});
  crash_at(CrashPoint::kGrowActive);
  return {};
}

Result<void> SessionCalls::take(const Call& call, const Spent& body) {
  crash_at(CrashPoint::kPressureSpent);
  if (body.device >= call.broker.policy().devices.size())
    return broken("it speaks of a device that there is not");
  return call.broker.spent(call.session, {device_at(call.broker, body.device)}, call.now);
}

Result<void> SessionCalls::take(const Call& call, const Describe&) {
  const auto view = call.broker.describe(call.session);
  if (!view) {
    answer_later(call, failed_with(view.error()));
    return {};
  }
  std::size_t first = 0;
  do {
    const Described body = to_body(*view, first);
    answer_later(call, body);
    first += body.count;
  } while (first < view->slices.size());
  return {};
}

Result<void> SessionCalls::take(const Call& call, const Explain&) {
  if (const auto explanation = call.broker.explain(call.session, call.now))
    answer_later(call, to_body(*explanation, call.now));
  else
    answer_later(call, failed_with(explanation.error()));
  return {};
}

void SessionCalls::answer_later(const Call& call, const Result<void>& done) {
  if (done)
    answer_later(call, Done{});
  else
    answer_later(call, failed_with(done.error()));
}

void SessionCalls::answer_growth(SessionId session, std::uint64_t number,
                                 const Result<core::Grant, core::GrowFailure>& answer) {
  growths_.erase({session, number});
  if (!answer) return sender_.send(session, Outgoing(to_body(answer.error()), number).bytes(), {});
  if (answer->leases.empty()) return sender_.send(session, Outgoing(Done{}, number).bytes(), {});  // reserved
  crash_at(CrashPoint::kGrowAnswer);
  for (std::size_t first = 0; first < answer->leases.size(); first += kMostLeases) {
    const Granted body = to_body(*answer, first);
    core::SentExtents extents;
    for (std::size_t i = 0; i < body.count; ++i) extents.ids.push_back(answer->leases[first + i].extent.id);
    sender_.send(session, Outgoing(body, number).bytes(), extents);
    crash_at(CrashPoint::kGrowAnswered);
  }
}

// Only if it is not decided once everything that follows from the request has been done.
void SessionCalls::tell_of_waiting(const Call& call) {
  executor_.after([this, session = call.session, number = call.number, &broker = call.broker] {
    const auto growth = growths_.find({session, number});
    if (growth == growths_.end()) return;
    const auto due = broker.answer_due(growth->second);
    if (!due) return;
    const Waiting body{*due == core::TimePoint::max() ? 0 : to_nanoseconds(*due)};
    sender_.send(session, Outgoing(body, number).bytes(), {});
  });
}

}  // namespace gpumem::lane
