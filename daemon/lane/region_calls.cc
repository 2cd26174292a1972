#include "daemon/lane/session_calls.h"

// Regions: published, mapped, waited for, reserved, removed.

namespace gpumem::lane {

Result<void> SessionCalls::take(const Call& call, const Publish& body) {
  if (call.expired) {
    answer_later(call, too_late());
    return {};
  }
  if (const auto version = api::publish(call.broker, call.session, to_call(body), call.now))
    answer_later(call, Published{version->value});
  else
    answer_later(call, failed_with(version.error()));
  return {};
}

Result<void> SessionCalls::take(const Call& call, const MapRegion& body) {
  if (!may_import(call)) return {};
  if (body.wait != 0) {
    return await_region(call, [&](core::Executor::MapAnswer answer) {
      return api::await_region(executor_, call.session, to_call(body), std::move(answer));
    });
  }
  const auto mapped = api::map_region(call.broker, call.session, to_call(body), call.now);
  if (mapped)
    answer_import(call, to_body(*mapped), mapped->imported);
  else
    answer_later(call, failed_with(mapped.error()));
  return {};
}

Result<void> SessionCalls::take(const Call& call, const MapOrReserve& body) {
  if (!may_import(call)) return {};
  return await_region(call, [&](core::Executor::MapAnswer answer) {
    return api::map_or_reserve(executor_, call.session, to_call(body), std::move(answer));
  });
}

Result<void> SessionCalls::take(const Call& call, const ReleaseReservation& body) {
  answer_later(call, api::release_reservation(call.broker, call.session,
                                              {core::ReservationId{body.reservation}}, call.now));
  return {};
}

// `begin`  starts the request, which its argument gets the end of, and returns its number.
template <class Begin>
Result<void> SessionCalls::await_region(const Call& call, Begin begin) {
  const std::pair key(call.session, call.number);
  if (!maps_.emplace(key, RequestId{}).second) return broken("two requests at once have one number");
  const RequestId id = begin([this, key](const auto& answer) { answer_map(key.first, key.second, answer); });
  const auto map = maps_.find(key);
  if (!id || map == maps_.end()) return {};
  map->second = id;
  executor_.after([this, key, &broker = call.broker] {
    const auto waiting = maps_.find(key);
    if (waiting == maps_.end()) return;
    const auto due = broker.map_due(waiting->second);
    if (due) sender_.send(key.first, Outgoing(Waiting{to_nanoseconds(*due)}, key.second).bytes(), {});
  });
  return {};
}

// Many that were waited for can be published at once: unread answers would use up descriptors, too.
void SessionCalls::answer_map(SessionId session, std::uint64_t number,
                              const Result<core::MapOutcome>& answer) {
  maps_.erase({session, number});
  const auto send = [&](const auto& body, const std::vector<ExtentId>& extents = {}) {
    sender_.send(session, Outgoing(body, number).bytes(), extents);
  };
  if (!answer) return send(failed_with(answer.error()));
  if (const auto* reserved = std::get_if<core::NameReserved>(&*answer)) return send(to_body(*reserved));
  const auto& mapped = std::get<core::MappedRegion>(*answer);
  if (sender_.is_behind(session)) {
    executor_.post([session, import = mapped.imported.id](core::Broker& broker, core::TimePoint now) {
      static_cast<void>(broker.release_import(session, import, now));  // unless the session has ended
    });
    return send(failed_with({Code::kUnavailable, "many answers are unread; read them and try again"}));
  }
  std::vector<ExtentId> extents;
  for (const auto& [lease, extent] : mapped.imported.leases) extents.push_back(extent.id);
  send(to_body(mapped), extents);
}

Result<void> SessionCalls::take(const Call& call, const RemoveRegion& body) {
  answer_later(call, api::remove_region(call.broker, call.session, to_call(body), call.now));
  return {};
}

}  // namespace gpumem::lane
