#pragma once
#include <span>
#include <string_view>

#include "daemon/core/broker.h"

namespace gpumem::core {

/// Sends packets to sessions.
class PacketSender {
 public:
  virtual ~PacketSender() = default;
  /// Sends `bytes` with the descriptors of `extents`, which exist as long as the session's lane does.
  /// Nothing, if the lane is gone. A lane that breaks over it ends its session before this returns. Inside
  /// work on the core's thread.
  virtual void send(SessionId session, std::string_view bytes, std::span<const ExtentId> extents) = 0;
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
