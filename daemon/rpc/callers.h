#pragma once
#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "gpumem/result.h"

namespace gpumem::rpc {

/// The token that the call carries; empty if it carries none.
std::string token_of(const grpc::CallbackServerContext& context);

/// The number of the descriptor of the call's connection, which Server::serve() was given.
std::optional<int> connection_of(const grpc::CallbackServerContext& context);

/// What a call is answered that needs a session, or any connection, and has none. Both kUnauthenticated.
Error no_session();
Error no_connection();

}  // namespace gpumem::rpc
