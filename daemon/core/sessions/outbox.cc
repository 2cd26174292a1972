#include "daemon/core/sessions/outbox.h"

namespace gpumem::core {

Event& Outbox::note(Event::Kind kind, TimePoint now) {
  Event& event = events_.emplace_back();
  event.kind = kind;
  event.at = now;
  return event;
}

Event& Outbox::note(Event::Kind kind, const Session& session, TimePoint now) {
  Event& event = note(kind, now);
  event.session = session.id;
  event.job = session.job;
  event.pid = session.peer.pid;
  event.tenant = session.tenant_name;
  event.uid = session.peer.user();
  return event;
}

void Outbox::note_bytes(Event::Kind kind, const Session& session, DeviceIndex device, Bytes bytes,
                        TimePoint now) {
  const bool goes_on = !events_.empty() && events_.back().kind == kind &&
                       events_.back().session == session.id && events_.back().device == device &&
                       events_.back().at == now;
  Event& event = goes_on ? events_.back() : note(kind, session, now);
  event.device = device;
  event.bytes += bytes;
}

void Outbox::touch(SessionId session) {
  if (touched_.empty() || touched_.back() != session) touched_.push_back(session);
}

}  // namespace gpumem::core
