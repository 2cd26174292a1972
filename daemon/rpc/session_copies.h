#pragma once
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/broker/executor.h"
#include "gpumem/v1/broker.pb.h"

namespace gpumem::rpc {

/// A session as listings show it, with the figures that its page tells.
struct SessionCopy {
  core::SessionView view;
  std::vector<std::optional<ClientFigures>> told;            ///< by slice
  std::vector<std::optional<ClientFigures>> told_of_device;  ///< by device of SessionView::memory
};

/// One page of sessions, as Broker::sessions(). Inside work on the core's thread.
std::vector<SessionCopy> copy_sessions(const core::Broker& broker, const core::Executor& executor,
                                       SessionId after, std::size_t most_slices);
/// `devices`  UUIDs. Threads  any.
v1::SessionInfo to_proto(const SessionCopy& copy, const std::vector<std::string>& devices,
                         core::TimePoint now);

}  // namespace gpumem::rpc
