#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/core/broker/broker.h"
#include "daemon/core/words/events.h"
#include "gpumem/result.h"
#include "shm/pages.h"

namespace gpumem::core {

using WallTime = std::chrono::system_clock::time_point;

/// The calling process, as the kernel identified it when the connection was accepted.
struct Caller {
  Peer peer;
  std::string tenant;  ///< that the peer belongs to; empty: to none
  bool admin = false;
  bool reader = false;                       ///< may read all accounts and follow all events
  std::optional<std::uint32_t> admin_gid{};  ///< of the group of administrators, if there is one
};

/// An event as it is kept. Neither number nor time ever goes back.
struct LoggedEvent {
  std::uint64_t sequence = 0;
  WallTime time;
  Event event;
};

/// A subscriber of events. Called on the core's thread; does not block.
class EventWatcher {
 public:
  virtual ~EventWatcher() = default;
  /// False: it wants no more.
  virtual bool tell(const std::shared_ptr<const LoggedEvent>& event, const Broker& broker) = 0;
  /// All stored events have been delivered; new ones follow as they happen. False: unsubscribe.
  virtual bool caught_up() = 0;
  /// The configuration was read again, so the subscriber may have lost the right to what it follows. False:
  /// it wants no more.
  virtual bool judge(const Broker&) { return true; }
  /// There will be no more: the broker is stopping.
  virtual void closed() = 0;
};

/// The opener of a session by Executor::open_session(), which speaks for its client. Called on the core's
/// thread; does not block.
class SessionHolder {
 public:
  virtual ~SessionHolder() = default;
  /// The session is asked for more memory than before: `figures` have the amounts, devices and deadlines.
  virtual void pressed(const BrokerFigures& figures) = 0;
  /// The session is over, and not because its holder ended it.
  virtual void closed(const Error& why) = 0;
};

/// How other threads reach the core: they post work, which is done on the core's thread.
class Executor {
 public:
  using Work = std::function<void(Broker& broker, TimePoint now)>;
  using GrowAnswer = std::function<void(const Result<Grant, GrowFailure>& answer)>;
  using MapAnswer = std::function<void(const Result<MapOutcome>& answer)>;

  virtual ~Executor() = default;

  /// Has `work` done on the core's thread, and its effects after it. Dropped if the core has stopped.
  /// Threads  any; does not block.
  virtual void post(Work work) = 0;
  /// As post(), in the turns of the user at the other end of gRPC's `connection`. What one connection posts
  /// is done in this order. None, or one that has ended: as post().
  virtual void post_for(std::optional<int> connection, Work work) {
    static_cast<void>(connection);
    post(std::move(work));
  }
  /// As post(); waits until the work is done. False: the core has stopped, and the work is dropped.
  /// Threads  any but the core's.   Blocks  while the core is busy.
  bool post_and_wait(const Work& work);

  // From here on: inside posted work only.

  /// Has `done` called once the effects of the work are done and the sessions' pages show what has become of
  /// it: whoever is answered may look at once.
  virtual void after(std::function<void()> done) = 0;

  /// The rest of a session's request that takes long: has `work` done in another turn of the session's user.
  virtual void go_on(SessionId session, Work work) {
    static_cast<void>(session);
    post(std::move(work));
  }

  /// Writes down what was decided so far, so that the next broker knows of it before anybody is told.
  /// Errors  kUnavailable (it cannot be written: the caller takes back what it decided).
  virtual Result<void> write_down() = 0;
  /// A kept region of these leases was published: the next broker is to have their memory.
  virtual void region_kept(const std::vector<LeaseId>&) {}

  /// The process at the other end of gRPC's connection with that number, if the connection is open.
  virtual std::optional<Caller> caller_of(int connection) const = 0;
  /// Opens a session for whoever is at the other end of `connection`. It lives until end_session(), or until
  /// its process or the broker ends, when `holder` is told.
  /// `job`  as of Broker::open_session().
  /// Errors  kUnauthenticated (the connection or its process is gone), kResourceExhausted (no descriptor
  ///         left), and those of Broker::open_session.
  virtual Result<SessionId> open_session(int connection, std::string label, CommandJobId job,
                                         std::shared_ptr<SessionHolder> holder) = 0;
  /// Ends such a session. Nothing, if it has ended already.
  virtual void end_session(SessionId session) = 0;
  /// Starts a growth; `answer` is called on the core's thread once, unless the session ends first, when it
  /// gets kCancelled.
  virtual RequestId grow(SessionId session, const Grow& request, GrowAnswer answer) = 0;
  /// Reserves memory for the session's job; `answer` as of grow(), a grant of nothing.
  virtual RequestId reserve_for_job(SessionId session, const ReserveForJob& request, GrowAnswer answer) = 0;
  /// Makes room for a context of the session's process; `answer` as of grow(), a grant of nothing.
  virtual RequestId announce_context(SessionId session, const AnnounceContext& request,
                                     GrowAnswer answer) = 0;
  /// Maps a region, waiting for it to be published if it is not, or reserves its name; `answer` as of grow().
  virtual RequestId map_region(SessionId session, const MapRegion& request, MapAnswer answer) = 0;
  /// Withdraws one of these, whatever it has come to; `answer` gets kCancelled if it was not called yet.
  virtual void cancel(RequestId request) = 0;
  /// The fabric handle of an extent that is on loan; none: it has none.
  virtual std::optional<HandleBytes> fabric_handle(ExtentId extent) const = 0;
  /// The session's own figures; nullopt where they cannot be true.
  virtual std::optional<ClientFigures> client_figures(SessionId session, DeviceIndex device,
                                                      Bytes charged) const = 0;
  /// Tells `watcher` of the events that are kept from `since` on (none: of no kept one), then of each as it
  /// happens, until it wants no more or unwatch().
  virtual void watch(std::shared_ptr<EventWatcher> watcher, std::optional<WallTime> since) = 0;
  virtual void unwatch(const EventWatcher& watcher) = 0;
};

/// Ends the regions that end with `request` (Broker::end_some_regions()), piece by piece, and then calls
/// `finish(request, broker, now)`: at once, unless there are very many. Inside work on the core's thread.
template <class Request, class Finish>
void after_regions(Executor& executor, Broker& broker, SessionId session, const Request& request,
                   TimePoint now, Finish finish) {
  if (!broker.end_some_regions(session, request, now)) return finish(request, broker, now);
  executor.go_on(session, [&executor, session, request, finish](Broker& again, TimePoint at) {
    after_regions(executor, again, session, request, at, finish);
  });
}

/// Sends packets to sessions.
class PacketSender {
 public:
  virtual ~PacketSender() = default;
  /// Sends `bytes` with the descriptors of `extents`, which exist as long as the session's lane does.
  /// Nothing, if the lane is gone. A lane that breaks over it ends its session in a later piece of work.
  /// Inside work on the core's thread.
  virtual void send(SessionId session, std::string_view bytes, const SentExtents& extents) = 0;
  /// Whether much of what was sent to the session is unread.
  virtual bool is_behind(SessionId session) const = 0;
};

/// Understands the packets of sessions.
class PacketReceiver {
 public:
  virtual ~PacketReceiver() = default;
  /// Does what the packet asks for. Inside work on the core's thread; the session lives.
  /// Errors  kInvalidArgument: it breaks the protocol, and the lane is to be closed.
  virtual Result<void> receive(SessionId session, std::string_view packet, Broker& broker, TimePoint now) = 0;
};

}  // namespace gpumem::core
