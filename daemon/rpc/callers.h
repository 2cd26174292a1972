#pragma once
#include <grpcpp/server_context.h>

#include <optional>

#include "daemon/core/executor.h"

namespace gpumem::rpc {

/// The number of the descriptor of the call's connection, which Server::serve() was given.
std::optional<int> connection_of(const grpc::CallbackServerContext& context);

/// The caller behind `connection`, a number of connection_of(). Called in work on the core's thread.
/// Errors  kUnauthenticated: the connection is gone.
Result<core::Caller> caller_of(const core::Executor& executor, std::optional<int> connection);

}  // namespace gpumem::rpc
