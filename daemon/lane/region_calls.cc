#include "daemon/lane/session_calls.h"

// Regions: published, mapped, waited for, reserved, removed.

namespace gpumem::lane {

Result<void> SessionCalls::take(const Call& call, const Publish& body) {
  if (is_late(call)) return {};
  crash_at(CrashPoint::kPublishRead);
  const auto request = to_request(body, call.number);
  answer_with_body(call, request ? core::publish(executor_, call.broker, call.session, *request, call.now)
                                 : Result<core::RegionId>(request.error()));
  crash_at(CrashPoint::kPublished);
  return {};
}

Result<void> SessionCalls::take(const Call& call, const MapRegion& body) {
  if (!may_import(call)) return {};
  crash_at(CrashPoint::kMapRead);
  const bool is_any = body.device == kAnyDevice;
  const core::MapRegion request = to_request(body, is_any ? "" : device_at(call.broker, body.device));
  if (request.wait != core::Duration::zero()) return await_region(call, request);
  const auto mapped = core::map_region(executor_, call.broker, call.session, request, call.now);
  crash_at(CrashPoint::kMapDecided);
  if (mapped && mapped->adopted) crash_at(CrashPoint::kMapAdopted);
  if (mapped)
    answer_import(call, to_body(*mapped), mapped->imported, CrashPoint::kMapSent);
  else
    answer_later(call, failed_with(mapped.error()));
  return {};
}

Result<void> SessionCalls::take(const Call& call, const MapOrReserve& body) {
  if (!may_import(call)) return {};
  crash_at(CrashPoint::kReserveRead);
  return await_region(call, to_request(body, call.number).as_map());
}

Result<void> SessionCalls::take(const Call& call, const ReleaseReservation& body) {
  crash_at(CrashPoint::kReservationReleaseRead);
  answer_later(
      call, call.broker.release_reservation(call.session, {core::ReservationId{body.reservation}}, call.now));
  crash_at(CrashPoint::kReservationReleased);
  return {};
}

// The answer takes it out of `maps_`.
Result<void> SessionCalls::await_region(const Call& call, const core::MapRegion& request) {
  const std::pair key(call.session, call.number);
  if (!maps_.emplace(key, RequestId{}).second) return broken("two requests at once have one number");
  const RequestId id = executor_.map_region(
      call.session, request, [this, key](const auto& answer) { answer_map(key.first, key.second, answer); });
  const auto map = maps_.find(key);
  if (map == maps_.end()) return {};
  map->second = id;
  executor_.after([this, key, &broker = call.broker] {
    const auto waiting = maps_.find(key);
    if (waiting == maps_.end()) return;
    const auto due = broker.region_due(waiting->second);
    if (!due) return;
    sender_.send(key.first, Outgoing(Waiting{to_nanoseconds(*due)}, key.second).bytes(), {});
    crash_at(CrashPoint::kMapWaits);
  });
  return {};
}

// Many that were waited for can be published at once: unread answers would use up descriptors, too.
void SessionCalls::answer_map(SessionId session, std::uint64_t number,
                              const Result<core::MapOutcome>& answer) {
  maps_.erase({session, number});
  crash_at(CrashPoint::kMapAnswer);
  const auto send = [&](const auto& body, const core::SentExtents& extents = {}) {
    sender_.send(session, Outgoing(body, number).bytes(), extents);
    if constexpr (std::is_same_v<decltype(body), const NameReserved&>) crash_at(CrashPoint::kReserveAnswered);
  };
  if (!answer) return send(failed_with(answer.error()));
  if (const auto* reserved = std::get_if<core::NameReserved>(&*answer)) return send(to_body(*reserved));
  const auto& mapped = std::get<core::MappedRegion>(*answer);
  if (sender_.is_behind(session)) {
    executor_.post([session, mapped](core::Broker& broker, core::TimePoint now) {
      broker.take_back(session, mapped, now);  // unless the session has ended
    });
    return send(failed_with({Code::kUnavailable, "many answers are unread; read them and try again"}));
  }
  send(to_body(mapped), extents_of(mapped.imported));
  crash_at(CrashPoint::kMapAnswered);
}

Result<void> SessionCalls::take(const Call& call, const RemoveRegion& body) {
  crash_at(CrashPoint::kRemoveRead);
  answer_later(call, call.broker.remove_region(call.session, to_request(body, call.number), call.now));
  crash_at(CrashPoint::kRemoved);
  return {};
}

}  // namespace gpumem::lane
