#pragma once
#include <functional>
#include <optional>
#include <string_view>

#include "daemon/core/broker.h"

namespace gpumem::core {

/// How other threads reach the core: they leave work at the gate, which is done on the core's thread.
class Gate {
 public:
  using Work = std::function<void(Broker& broker, TimePoint now)>;
  using GrowAnswer = std::function<void(const Result<Grant, GrowFailure>& answer)>;

  virtual ~Gate() = default;

  /// Has `work` done on the core's thread, and its effects after it. Dropped if the core has stopped.
  /// Threads  any; does not block.
  virtual void post(Work work) = 0;

  // From here on: inside posted work only.

  /// The session that `token` was given to, if it lives.
  virtual std::optional<SessionId> session_of(std::string_view token) const = 0;
  /// Starts a growth; `answer` is called on the core's thread once, unless the session ends first, when it
  /// gets kCancelled.
  virtual RequestId grow(SessionId session, SliceId slice, Bytes bytes, Duration wait, GrowAnswer answer) = 0;
  /// Withdraws it, whatever it has come to; `answer` gets kCancelled if it was not called yet.
  virtual void cancel(RequestId request) = 0;
  /// What the session says of itself; nothing where that cannot be true.
  virtual std::optional<ClientFigures> client_figures(SessionId session, DeviceIndex device,
                                                      Bytes charged) const = 0;
};

}  // namespace gpumem::core
