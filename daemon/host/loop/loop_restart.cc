// The loop's part that takes over from the broker before, and speaks with its clients that come back.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/crash_point.h"
#include "base/log.h"
#include "base/text/printable.h"
#include "daemon/host/lanes/session_link.h"
#include "daemon/host/loop/loop.h"
#include "daemon/host/sockets/peer.h"

namespace gpumem::host {
namespace {

// So long are clients of the broker before awaited. It starts when they can connect.
constexpr auto kGrace = std::chrono::seconds(10);

Error not_awaited() {
  return {Code::kUnauthenticated,
          "the broker was restarted and does not know this session (any more); memory that is mapped stays "
          "usable; open a new session to allocate more"};
}

/// By session: the leases of the host store that it was lent, has imported, or had.
std::map<SessionId, std::set<LeaseId>> host_leases(const Journal::Content& before) {
  std::map<SessionId, std::set<LeaseId>> leases;
  const auto& all = before.checkpoint.leases;
  const auto add = [&](SessionId session, LeaseId id) {
    const auto lease = all.find(id);
    if (lease != all.end() && before.devices.at(lease->second.device) == kHostStore)
      leases[session].insert(id);
  };
  for (const auto& [id, lease] : all) add(lease.session, id);
  for (const auto& [id, import] : before.checkpoint.imports)
    for (const LeaseId lease : import.leases) add(import.session, lease);
  for (const auto& [lease, session] : before.checkpoint.suspects) add(session, lease);
  return leases;
}

}  // namespace

void Loop::take_over(const Journal::Content& before, std::map<LeaseId, KeptDescriptor>& kept) {
  const auto now = std::chrono::steady_clock::now();
  std::size_t awaited = 0;
  std::set<LeaseId> leases;
  for (const auto& [lease, descriptor] : kept) leases.insert(lease);
  const core::Restored restored = broker_.restore(before.checkpoint, before.devices, leases, now);
  request_ids_.skip(restored.last_request);
  for (const core::RestoredExtent& one : restored.extents)
    extents_->adopt(one.extent, one.lease, one.device, std::move(kept.extract(one.lease).mapped()));
  const auto of_host = host_leases(before);
  for (const core::RestoredSession& session : restored.sessions) {
    const auto link = std::make_shared<AwaitedLink>(io_, session.peer);
    clients_.emplace(session.id, Client{link, flow_of(session.peer, administrators_.include(session.peer))});
    awaited += session.awaited ? 1 : 0;
    const auto watched = link->watch();
    const auto leases = of_host.find(session.id);
    if (leases != of_host.end() && (watched || watched.error().code != Code::kNotFound))
      note_holder(leases->second, restored, link->handle());
    if (watched) {
      link->await_end([this, id = session.id] { queue_end(id, core::SessionEnd::kExited); });
    } else if (watched.error().code == Code::kNotFound || !session.awaited) {
      // Whether its memory is free is for the driver to say.
      broker_.exited(session.id, now);
    }
  }
  crash_at(CrashPoint::kRestartRestored);
  if (!before.checkpoint.sessions.empty())
    spdlog::info("taking over {} sessions, {} of which may be resumed; of {} leases {} can be handed on",
                 before.checkpoint.sessions.size(), awaited, before.checkpoint.leases.size(),
                 restored.extents.size());
}

void Loop::note_holder(const std::set<LeaseId>& leases, const core::Restored& restored,
                       const ProcessHandle& process) {
  const auto& devices = broker_.policy().devices;
  const auto store = std::ranges::find_if(devices, &core::DevicePolicy::is_host);
  if (store == devices.end()) return;
  const auto place = static_cast<core::DeviceIndex>(store - devices.begin());
  std::set<LeaseId> rest = leases;
  for (const core::RestoredExtent& one : restored.extents)
    if (rest.erase(one.lease) != 0) extents_->note_holder(one.lease, one.extent.id, place, process);
  for (const LeaseId lease : rest) extents_->note_holder(lease, std::nullopt, place, process);
}

void Loop::end_grace() {
  grace_.expires_after(kGrace);
  grace_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    crash_at(CrashPoint::kRestartGraceOver);
    queue_own([this](core::Broker& broker, core::TimePoint at) {
      for (const auto& [id, client] : clients_) {
        if (!broker.awaits(id)) continue;
        const auto* link = dynamic_cast<const AwaitedLink*>(client.link.get());
        const bool seen = link != nullptr && link->is_watching();
        if (seen && broker.holds_nothing(id)) continue;  // nobody waits for anything of it
        spdlog::warn("session {}, {}: its client has not come back; what it holds stays charged {}", id.value,
                     client.link->who(), seen ? "until its process ends" : "until the driver proves it free");
        broker.session_ended(id, seen ? core::SessionEnd::kLost : core::SessionEnd::kExited, at);
      }
    });
  });
}

Result<void> Loop::resume(const std::shared_ptr<Lane>& lane, const lane::Incoming& frame) {
  crash_at(CrashPoint::kResumeRead);
  auto part = lane::body_of<lane::Resume>(frame);
  if (!part) return part.error();
  if (auto spoken = check_versions(part->oldest, part->newest); !spoken) return spoken;
  const SessionId session{part->session};
  const auto client = clients_.find(session);
  if (client == clients_.end() || !broker_.awaits(session)) return not_awaited();
  auto* const before = dynamic_cast<AwaitedLink*>(client->second.link.get());
  if (before == nullptr || !before->peer().is_same_process(lane->peer())) return not_awaited();
  before->resumed_by(lane->handle());
  auto inventory = inventories_.add(lane.get(), *part, broker_.most_in_inventory(session));
  if (!inventory) return inventory.error();
  if (!*inventory) return {};
  silent_.remove(lane.get());
  const lane::Welcome body = welcome_of(session);
  return welcome_back(lane, session, **inventory, lane::Outgoing(body, frame.header.request).bytes());
}

// The Welcome comes last: the client may be gone already, and with it the lane and the session.
Result<void> Loop::welcome_back(const std::shared_ptr<Lane>& lane, SessionId session,
                                const core::Inventory& inventory, std::string_view welcome) {
  auto ends = make_ends(*lane);
  if (!ends) return Error{Code::kUnavailable, ends.error().message};  // the session can still be resumed
  if (auto resumed = broker_.resume(session, inventory, now()); !resumed) return resumed;
  crash_at(CrashPoint::kResumeDecided);
  const std::array<int, 3> descriptors = ends->numbers();
  const auto link = std::make_shared<LaneLink>(lane, std::move(ends->pages), std::move(ends->doorbell));
  std::exchange(clients_.at(session).link, link)->forget();
  spdlog::info("session {}, {}: resumed", session.value, link->who());
  link->press(broker_.figures(session));  // a reclaim request may wait for the session
  lane->welcome(session, welcome, descriptors);
  crash_at(CrashPoint::kResumeWelcomed);
  return {};
}

}  // namespace gpumem::host
