#pragma once
#include <atomic>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "client/greeting.h"
#include "client/lane_socket.h"
#include "client/session_claim.h"

namespace gpumem::client {

/// Goes on with a session at a broker that was restarted. It may take several attempts: there may be no
/// broker yet, or one that is not ready. Each attempt continues the one before: a broker that reads a claim
/// whose sender has gone gives the session up. Threads  one at a time.
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
  Result<std::optional<Resumed>> attempt(const SessionClaim::Frames& claim, Clock::time_point deadline);
  /// Whether a broker is there, which has not answered the claim yet. Threads  any.
  bool has_reached_one() const { return reached_; }
  /// Says `goodbye` to a broker that has not answered a claim yet; does nothing without one.
  void leave(std::string_view goodbye);

 private:
  void drop();
  bool reserve_descriptors();
  bool begin(const SessionClaim::Frames& claim, Clock::time_point deadline);
  bool send(std::string_view frame, Clock::time_point deadline) const;
  Result<std::optional<Resumed>> take(LanePacket& packet);
  Result<void> check(const Welcome& now) const;

  const std::filesystem::path path_;
  const Welcome before_;
  std::optional<LaneSocket> socket_;  ///< the claim was sent on it
  /// In place of those that the Welcome brings: a claim that is answered is answered once.
  std::vector<OwnFd> reserved_;
  std::atomic<bool> reached_{false};  ///< there is one
};

}  // namespace gpumem::client
