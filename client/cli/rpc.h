#pragma once
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "gpumem/result.h"

namespace gpumem::cli {

/// Creates a gRPC channel to the broker's API socket. It connects at the first call.
std::shared_ptr<grpc::Channel> make_channel(const std::filesystem::path& socket);

/// Limits the call of `context` to `timeout`, by the steady clock.
void set_timeout(grpc::ClientContext& context, std::chrono::milliseconds timeout);

/// Converts the failed `status` of a call to the broker at `socket` into an error.
Error call_error(const grpc::Status& status, const std::filesystem::path& socket);

}  // namespace gpumem::cli
