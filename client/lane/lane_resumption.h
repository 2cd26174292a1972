#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "client/lane/lane_socket.h"
#include "client/process/fork_guard.h"
#include "proto/lane/frames.h"

namespace gpumem::client {

/// What the broker says of the session and of itself.
struct Welcome {
  std::uint64_t session = 0;
  std::string tenant;
  std::string driver_folder;         ///< where the broker found its driver; empty: the system's search path
  std::vector<std::string> devices;  ///< UUIDs; the index is the device's place in the shared pages
  std::uint64_t job = 0;             ///< that the session is in; 0: none
  bool is_host_of_driver = false;    ///< the memory of the host store is the driver's; else it is files
};

/// The broker's answer to a Hello or a Resume.
struct Greeting {
  Welcome welcome;
  OwnFd broker_page;
  OwnFd client_page;
  OwnFd doorbell;
};

/// The greeting of `body`, which came in `packet`, whose descriptors it takes.
/// Errors  kFailedPrecondition: of another version; kInternal: it breaks the protocol;
///         kResourceExhausted: this process has no room for the descriptors (RLIMIT_NOFILE).
Result<Greeting> greeting_of(const lane::Welcome& body, LanePacket& packet);

/// The memory that a session holds, computed from the frames sent and received. It proves this memory to a
/// restarted broker.
/// Memory whose return has begun is not part of it.
class SessionHoldings {
 public:
  /// The client is about to send `packet`, one frame.
  void note_sent(std::string_view packet);
  /// The client has received `frame`.
  void note_received(const lane::Incoming& frame);

  /// The frames that resume `session` with all of it.
  std::vector<lane::Resume> frames(std::uint64_t session) const;
  /// Returns the frames at the time of the call. Threads  any.
  using Frames = std::function<std::vector<lane::Resume>(std::uint64_t session)>;

 private:
  using Ids = std::set<std::uint64_t>;
  Ids slices_;
  Ids leases_;
  Ids imports_;
};

/// Goes on with a session at a broker that was restarted. It may take several attempts: there may be no
/// broker yet, or one that is not ready. Each attempt continues the one before: a broker that reads a
/// request to resume whose sender has gone ends the session. Threads  one at a time.
class LaneResumption {
 public:
  using Clock = LaneSocket::Clock;

  /// `socket`  the path of the lane's socket. `before`  what the broker before said of the session.
  LaneResumption(std::filesystem::path socket, Welcome before)
      : path_(std::move(socket)), before_(std::move(before)) {}

  struct Resumed {
    LaneSocket socket;
    Greeting greeting;
  };
  /// Nothing: no broker has answered until `deadline`, or even before. Errors  the session is lost; why.
  Result<std::optional<Resumed>> attempt(const SessionHoldings::Frames& holdings, Clock::time_point deadline);
  /// Whether a broker is there that has not answered the request to resume yet. Threads  any.
  bool has_reached_one() const { return reached_; }
  /// Why the last attempt could not even ask a broker, if one may be there; else nothing.
  const std::string& obstacle() const { return obstacle_; }
  /// Says `goodbye` to a broker that has not answered the request yet; does nothing without one.
  void leave(std::string_view goodbye);

 private:
  void drop();
  Result<void> reserve_descriptors();
  /// Errors  kUnavailable: there is no broker, or it has ended; as connect_lane.
  Result<void> begin(const SessionHoldings::Frames& holdings, Clock::time_point deadline);
  bool send(std::string_view frame, Clock::time_point deadline) const;
  Result<std::optional<Resumed>> take(LanePacket& packet);
  Result<void> check(const Welcome& now) const;

  const std::filesystem::path path_;
  const Welcome before_;
  std::optional<LaneSocket> socket_;  ///< the request to resume was sent on it
  /// In place of those that the Welcome brings: the broker answers once.
  std::vector<OwnFd> reserved_;
  std::atomic<bool> reached_{false};  ///< there is one
  std::string obstacle_;
};

}  // namespace gpumem::client
