// The loop's part that serves calls by gRPC: who makes them, and sessions that are streams.
#include "base/check.h"
#include "daemon/host/loop.h"
#include "daemon/host/session_link.h"

namespace gpumem::host {

std::optional<core::Caller> Loop::caller_of(int connection) const {
  const auto known = connections_.find(connection);
  if (!known) return std::nullopt;
  core::Caller caller{known->peer, {}, administrators_.include(known->peer)};
  if (const auto match = core::tenant_of(broker_.policy(), known->peer)) caller.tenant = match->name;
  return caller;
}

Result<SessionId> Loop::open_session(int connection, std::string label,
                                     std::shared_ptr<core::SessionHolder> holder) {
  auto client = connections_.find(connection);
  if (!client) return Error{Code::kUnauthenticated, "the connection of this call has ended"};
  core::Peer peer = client->peer;
  peer.maps = false;
  auto link = StreamLink::create(io_, std::move(*client), std::move(holder));
  if (!link) return link.error();
  if (budget_.is_reserved((*link)->descriptor(), administrators_.include(peer))) return no_descriptors();
  auto session = broker_.open_session(peer, std::move(label), std::chrono::steady_clock::now());
  if (!session) return session.error();
  const bool added = clients_.emplace(*session, Client{*link}).second;
  GPUMEM_CHECK(added, "session ids are new");
  (*link)->await_end([this, id = *session, weak = std::weak_ptr(*link)] {
    run([&](core::Broker& broker, core::TimePoint at) {
      end_requests_of(id);
      broker.exited(id, at);
    });
    if (const auto ended = weak.lock()) ended->close({Code::kUnavailable, "the session's process has ended"});
  });
  return *session;
}

// Nothing of the session's memory was ever handed to its process: it comes back at once.
void Loop::end_session(SessionId session) {
  run([&](core::Broker& broker, core::TimePoint at) {
    end_requests_of(session);
    broker.session_ended(session, core::SessionEnd::kReleased, at);
  });
}

}  // namespace gpumem::host
