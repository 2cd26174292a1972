#pragma once
#include <grpcpp/server.h>

#include <filesystem>
#include <initializer_list>
#include <memory>

#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// Whether a socket can have this path. Errors  kInvalidArgument: it is too long; says how long it may be.
Result<void> check_socket_path(const std::filesystem::path& socket);

/// Serves `services` on a Unix socket; one that a process has left there is replaced. Errors  kUnavailable:
/// cannot listen; names the path.
Result<std::unique_ptr<grpc::Server>> listen(const std::filesystem::path& socket,
                                             std::initializer_list<grpc::Service*> services);

/// Removes the socket, lets calls that are under way end, for 10 s at most, and ends `server`, if any.
void stop_listening(std::unique_ptr<grpc::Server>& server, const std::filesystem::path& socket);

}  // namespace gpumem::kubernetes
