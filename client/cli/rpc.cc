#include "client/cli/rpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cctype>

#include "client/status.h"

namespace gpumem::cli {
namespace {

/// gRPC reads the target as a URI.
std::string socket_target(const std::filesystem::path& socket) {
  constexpr std::string_view kPlain = "/-._~+,=@";
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::error_code no_matter;
  const std::filesystem::path path = std::filesystem::absolute(socket, no_matter);
  std::string target = "unix:";
  for (const char letter : path.native()) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || kPlain.find(letter) != std::string_view::npos) {
      target += letter;
    } else {
      target += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return target;
}

}  // namespace

std::shared_ptr<grpc::Channel> make_channel(const std::filesystem::path& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // a change is made once
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);  // an upgraded broker is back soon
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(socket_target(socket), grpc::InsecureChannelCredentials(), arguments);
}

void set_timeout(grpc::ClientContext& context, std::chrono::milliseconds timeout) {
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout.count(), GPR_TIMESPAN)));
}

Error call_error(const grpc::Status& status, const std::filesystem::path& socket) {
  const std::string& words = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return {Code::kUnavailable,
              "the broker at " + socket.string() + " is gone (systemctl status gpumemd): " + words};
    case grpc::StatusCode::CANCELLED:  // not by this side, which reports its own cancelling earlier
      return {Code::kUnavailable,
              "the broker at " + socket.string() + " broke the call off: it is stopping: " + words};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Code::kInternal, "the broker does not know this call; it is of another version: " + words};
    default: break;
  }
  const auto number = static_cast<std::uint64_t>(status.error_code());
  return {client::code_of(number), words.empty() ? "the broker gives no reason" : words};
}

}  // namespace gpumem::cli
