#pragma once
#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "daemon/core/executor.h"

namespace gpumem::rpc {

/// The token that the call carries; empty if it carries none. Only clients of the lane's version 2 have one.
std::string token_of(const grpc::CallbackServerContext& context);

/// The number of the descriptor of the call's connection, which Server::serve() was given.
std::optional<int> connection_of(const grpc::CallbackServerContext& context);

/// Who is at the other end of `connection`, as connection_of() has it. Inside work on the core's thread.
/// Errors  kUnauthenticated: the connection is gone.
Result<core::Caller> caller_of(const core::Executor& executor, std::optional<int> connection);

/// What a call is answered that needs the token of a session and has none. kUnauthenticated.
Error no_session();

}  // namespace gpumem::rpc
