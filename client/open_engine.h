#pragma once
#include <memory>

#include "client/allocator/engine.h"
#include "client/connection.h"
#include "gpumem/options.h"

namespace gpumem::client {

/// Opens the implementation of an Allocator: an engine over memory of the broker. It keeps `connection`
/// alive, and answers the broker's requests for memory. In a forked child its end does nothing. Errors  as
/// Session::open_allocator.
Result<std::shared_ptr<allocator::Engine>> open_engine(std::shared_ptr<Connection> connection,
                                                       const AllocatorOptions& options);

}  // namespace gpumem::client
