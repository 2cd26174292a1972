#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "daemon/core/effects.h"
#include "daemon/host/extents.h"
#include "shm/pages.h"

namespace gpumem::host {

/// The connection of a session to its client: sends the loop's messages.
/// Threads  the loop's.
class SessionLink {
 public:
  virtual ~SessionLink() = default;
  SessionLink() = default;
  SessionLink(const SessionLink&) = delete;
  SessionLink& operator=(const SessionLink&) = delete;

  /// The client in words: `pid 7 (uid 1000, python)`.
  virtual std::string who() const = 0;
  /// The connection is there: packets can be sent.
  virtual bool is_open() const = 0;
  /// The session's figures have changed.
  virtual void publish(const BrokerFigures& figures) = 0;
  /// The session is asked for more memory than before, as `figures` say.
  virtual void press(const BrokerFigures& figures) = 0;
  virtual void send(std::string_view packet, std::span<const int> descriptors) = 0;
  /// Whether much of what was sent is unread.
  virtual bool is_behind() const = 0;
  /// The figures that the client reports; nothing if they cannot be true.
  virtual std::optional<ClientFigures> client_figures(core::DeviceIndex device, Bytes charged) const = 0;
  /// Errors  as ProcessWatch::signal.
  virtual Result<void> signal(core::Signal signal) = 0;
  /// The broker is stopping.
  virtual void stop() = 0;
  /// The session is over and holds nothing any more.
  virtual void forget() = 0;
};

}  // namespace gpumem::host
