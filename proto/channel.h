#pragma once
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace gpumem {

/// What gRPC calls the Unix socket at `path`: a URI.
std::string socket_target(const std::filesystem::path& path);

/// A gRPC channel to the broker's API socket. It connects at the first call.
std::shared_ptr<grpc::Channel> broker_channel(const std::filesystem::path& socket);

/// Limits the call of `context` to `timeout`, by the steady clock.
void set_timeout(grpc::ClientContext& context, std::chrono::milliseconds timeout);

}  // namespace gpumem
