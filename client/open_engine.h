#pragma once
#include <memory>
#include <optional>

#include "client/allocator/engine.h"
#include "client/connection.h"
#include "client/room.h"
#include "gpumem/options.h"

namespace gpumem::client {

/// Opens the implementation of an Allocator: an engine over memory of the broker. It keeps `connection`
/// alive, and answers the broker's requests for memory. In a forked child its end does nothing.
/// `room`      that the engine's memory is taken of; null: the limit alone counts.
/// `deadline`  of what the broker is asked; none: the connection's timeout.
/// Errors  as Session::open_allocator.
Result<std::shared_ptr<allocator::Engine>> open_engine(std::shared_ptr<Connection> connection,
                                                       const AllocatorOptions& options,
                                                       std::shared_ptr<Room> room = {},
                                                       std::optional<Lane::Clock::time_point> deadline = {});

}  // namespace gpumem::client
