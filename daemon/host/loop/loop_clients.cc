#include <algorithm>

#include "base/check.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/text/printable.h"
#include "daemon/core/words/refusals.h"
#include "daemon/host/lanes/session_link.h"
#include "daemon/host/loop/loop.h"

// The loop's part for clients: connections, and the beginning and the end of sessions, by lanes and by
// streams of gRPC. The requests of sessions go to the receiver.

namespace gpumem::host {
namespace {

constexpr auto kUntilSpareEnds = std::chrono::milliseconds(1);

bool opens(lane::Kind kind) { return kind == lane::Kind::kHello || kind == lane::Kind::kResume; }

}  // namespace

std::optional<ClientFigures> Loop::client_figures(SessionId session, core::DeviceIndex device,
                                                  Bytes charged) const {
  const auto client = clients_.find(session);
  if (client == clients_.end()) return std::nullopt;
  return client->second.link->client_figures(device, charged);
}

void Loop::watch(std::shared_ptr<core::EventWatcher> watcher, std::optional<core::WallTime> since) {
  events_.watch(std::move(watcher), since, broker_);
}

PeerListener::Options Loop::listening(Options& options) {
  return {
      .socket = std::move(options.lane_socket.fd),
      .shared = options.lane_socket.shared,
      .kernel = options.kernel,
      .budget = budget_,
      .administrators = &administrators_,
      .disposal = &disposal_,
      .silent = &silent_,
      .queue = [this](std::function<void()> work) { queue(kConnectionsFlow, std::move(work)); },
      .accepted = [this](Connection connection) { take_in(std::move(connection)); },
      .refused = [this](Connection connection, const Error& error) { refuse(std::move(connection), error); },
      .warn = [this](const std::string& words) { warn(words); }};
}

void Loop::take_in(Connection connection) {
  crash_at(CrashPoint::kSessionAccepted);
  auto lane = Lane::create(io_, std::move(connection), *this, disposal_, unread_);
  if (!lane) return warn("a connection was cut: " + lane.error().message);
  if (!(*lane)->is_admin()) {
    silent_.add(lane->get(), (*lane)->peer().account(),
                [weak = std::weak_ptr(*lane)](const std::string& why) {
                  if (const auto silent = weak.lock()) silent->close(why);
                });
  }
  (*lane)->start();
}

void Loop::refuse(Connection connection, const Error& error) {
  if (auto lane = Lane::create(io_, std::move(connection), *this, disposal_, unread_)) (*lane)->refuse(error);
}

Result<Loop::Opened> Loop::open_session(const std::shared_ptr<Lane>& lane, const std::string& label,
                                        core::CommandJobId job) {
  auto ends = make_ends(*lane);
  if (!ends) return ends.error();
  auto session = broker_.open_session(lane->peer(), label, now(), job, lane->is_admin());
  if (!session) return session.error();
  crash_at(CrashPoint::kSessionOpened);
  if (auto written = write_down(); !written) {  // before the Welcome tells of it
    broker_.session_ended(*session, core::SessionEnd::kReleased, now());
    return written.error();
  }
  crash_at(CrashPoint::kSessionJournalled);
  const auto [client, added] = clients_.emplace(
      *session, Client{std::make_shared<LaneLink>(lane, std::move(ends->pages), std::move(ends->doorbell)),
                       flow_of(lane->peer(), lane->is_admin())});
  GPUMEM_CHECK(added, "session ids are new");
  publish(*session);
  return Opened{*session, std::move(*ends)};
}

Result<Loop::Ends> Loop::make_ends(const Lane& lane) {
  if (fails_at(CrashPoint::kSessionEnds)) return no_descriptors();
  if (unread_.is_full_of_closed(lane.peer().account()))
    return core::refusal(core::Bound::kDescriptors,
                         "connections of this user have ended, and what was sent to them is unread: end the "
                         "processes that keep them");
  auto ends = spare_ends_ ? Result<Ends>(std::move(*spare_ends_)) : Ends::create();
  spare_ends_.reset();
  if (!ends) return ends;
  make_spare_ends_soon();
  if (budget_.is_reserved(ends->highest_descriptor(), lane.is_admin())) return no_descriptors();
  return ends;
}

Result<Loop::Ends> Loop::Ends::create() {
  auto pages = SharedPages::create();
  if (!pages) return pages.error();
  auto doorbell = Doorbell::create();
  if (!doorbell) return doorbell.error();
  auto page_files = pages->take_descriptors();
  UniqueFd bell = doorbell->take_descriptor();
  return Ends{std::move(*pages),
              std::move(*doorbell),
              {std::move(page_files[0]), std::move(page_files[1]), std::move(bell)}};
}

// Not while a session begins, whose first call would wait.
void Loop::make_spare_ends_soon() {
  making_ends_.expires_after(kUntilSpareEnds);
  making_ends_.async_wait([this](const boost::system::error_code& error) {
    if (!error) make_spare_ends();
  });
}

// Without them the next session makes its own, or says why it cannot.
void Loop::make_spare_ends() {
  if (spare_ends_) return;
  auto ends = Ends::create();
  if (ends && !budget_.is_reserved(ends->highest_descriptor(), false)) spare_ends_.emplace(std::move(*ends));
}

std::array<int, 3> Loop::Ends::numbers() const {
  return {descriptors[0].get(), descriptors[1].get(), descriptors[2].get()};
}

Error Loop::no_descriptors() const {
  return core::refusal(
      core::Bound::kDescriptors,
      "the broker has no descriptors left for another session: raise its limit of open files (LimitNOFILE=)");
}

void Loop::closed(const std::shared_ptr<Lane>& lane, bool released) {
  silent_.remove(lane.get());
  inventories_.drop(lane.get());
  if (!lane->session()) return lane->forget();  // nothing is charged to its process: no need to see it end
  const auto end = released                   ? core::SessionEnd::kReleased
                   : lane->process_may_live() ? core::SessionEnd::kLost
                                              : core::SessionEnd::kExited;
  queue_end(lane->session(), end);
}

// The regions of a session end piece by piece, and then the rest of it.
void Loop::queue_end(SessionId session, core::SessionEnd end) {
  queue_own([this, session, end](core::Broker& broker, core::TimePoint at) {
    if (end != core::SessionEnd::kLost && broker.end_some_regions(session, at))
      return queue_end(session, end);
    end_requests_of(session);
    crash_at(CrashPoint::kSessionClosed);
    broker.session_ended(session, end, at);
    crash_at(CrashPoint::kSessionEnded);
  });
}

void Loop::process_exited(const std::shared_ptr<Lane>& lane) {
  if (!lane->session()) return;
  queue_end(lane->session(), core::SessionEnd::kExited);
}

// Names that are longer than their places are no names of ours.
lane::Welcome Loop::welcome_of(SessionId session) const {
  lane::Welcome body{};
  body.version = lane::kVersion;
  body.session = session.value;
  body.job = broker_.job_of(session).value;
  body.tenant = decltype(body.tenant)::of(broker_.tenant_name(session));
  body.driver_folder = decltype(body.driver_folder)::of(driver_folder_);
  body.is_host_of_driver = is_host_of_driver_ ? 1 : 0;
  for (const core::DevicePolicy& device : broker_.policy().devices)
    body.devices[body.count++] = decltype(body.devices)::value_type::of(device.uuid);
  return body;
}

Result<void> Loop::check_versions(std::uint16_t oldest, std::uint16_t newest) {
  if (oldest <= lane::kVersion && newest >= lane::kVersion) return {};
  return Error{Code::kFailedPrecondition, "the client speaks versions " + std::to_string(oldest) + " to " +
                                              std::to_string(newest) + " of the lane, this broker speaks " +
                                              std::to_string(lane::kVersion) +
                                              ": install the same version on both sides"};
}

void Loop::readable(const std::shared_ptr<Lane>& lane) {
  in_turn(lane, [this, lane] { take_frame(lane); });
}

void Loop::in_turn(const std::shared_ptr<Lane>& lane, std::function<void()> work) {
  serve(flow_of(lane->peer(), lane->is_admin()), std::move(work));
}

// The sessions of one user are served in turns, too: one frame of each.
void Loop::take_frame(const std::shared_ptr<Lane>& lane) {
  there_since_ = lane->readable_since();
  if (lane->take_frame()) readable(lane);
  there_since_ = core::TimePoint::max();
}

void Loop::frame(const std::shared_ptr<Lane>& lane, std::string_view packet) {
  const auto frame = lane::parse(packet);
  if (!frame) return lane->close(frame.error().message);
  const bool greets = opens(frame->header.kind);
  if (greets == lane->session().operator bool()) return lane->close("it greeted twice, or not first");
  if (frame->header.kind == lane::Kind::kGoodbye) return lane->note_goodbye();
  const auto take = [&](core::Broker& broker, core::TimePoint at) {
    if (greets) {
      const bool is_new = frame->header.kind == lane::Kind::kHello;
      if (auto welcomed = is_new ? greet(lane, *frame) : resume(lane, *frame); !welcomed)
        lane->refuse(welcomed.error(), frame->header.request);
    } else if (auto taken = receiver_->receive(lane->session(), packet, broker, at); !taken) {
      lane->close(taken.error().message);
    }
  };
  run(std::ref(take));  // by reference, since its captures do not fit into a function without an allocation
}

Result<void> Loop::greet(const std::shared_ptr<Lane>& lane, const lane::Incoming& frame) {
  silent_.remove(lane.get());
  auto hello = lane::body_of<lane::Hello>(frame);
  if (!hello) return hello.error();
  if (auto spoken = check_versions(hello->oldest, hello->newest); !spoken) return spoken;
  auto opened = open_session(lane, std::string(hello->label.view()), {hello->job});
  if (!opened) return opened.error();
  const lane::Welcome body = welcome_of(opened->session);
  lane->welcome(opened->session, lane::Outgoing(body, frame.header.request).bytes(), opened->ends.numbers());
  crash_at(CrashPoint::kSessionWelcomed);
  return {};
}

std::optional<core::Caller> Loop::caller_of(int connection) const {
  const auto known = connections_.find(connection);
  if (!known) return std::nullopt;
  core::Caller caller{known->peer,
                      {},
                      administrators_.include(known->peer),
                      administrators_.is_reader(known->peer),
                      administrators_.group()};
  if (const auto match = core::tenant_of(broker_.policy(), known->peer)) caller.tenant = match->name;
  return caller;
}

Result<SessionId> Loop::open_session(int connection, std::string label, core::CommandJobId job,
                                     std::shared_ptr<core::SessionHolder> holder) {
  auto client = connections_.find(connection);
  if (!client) return Error{Code::kUnauthenticated, "the connection of this call has ended"};
  core::Peer peer = client->peer;
  peer.maps = false;
  auto link = StreamLink::create(io_, std::move(*client), std::move(holder));
  if (!link) return link.error();
  if (budget_.is_reserved((*link)->descriptor(), administrators_.include(peer))) return no_descriptors();
  auto session = broker_.open_session(peer, std::move(label), now(), job, administrators_.include(peer));
  if (!session) return session.error();
  const Flow flow = flow_of(peer, administrators_.include(peer));
  const bool added = clients_.emplace(*session, Client{*link, flow}).second;
  GPUMEM_CHECK(added, "session ids are new");
  (*link)->await_end([this, id = *session, weak = std::weak_ptr(*link)] {
    queue_end(id, core::SessionEnd::kExited);
    queue_own([weak](core::Broker&, core::TimePoint) {
      if (const auto ended = weak.lock())
        ended->close({Code::kUnavailable, "the session's process has ended"});
    });
  });
  return *session;
}

// Nothing of the session's memory was ever handed to its process: it comes back at once.
void Loop::end_session(SessionId session) {
  run([&](core::Broker& broker, core::TimePoint at) {
    if (broker.end_some_regions(session, at)) return queue_end(session, core::SessionEnd::kReleased);
    end_requests_of(session);
    broker.session_ended(session, core::SessionEnd::kReleased, at);
  });
}

}  // namespace gpumem::host
