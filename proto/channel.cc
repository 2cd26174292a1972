#include "proto/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cctype>
#include <string_view>

namespace gpumem {

std::string socket_target(const std::filesystem::path& path) {
  constexpr std::string_view kPlain = "/-._~+,=@";
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::error_code no_matter;
  const std::filesystem::path whole = std::filesystem::absolute(path, no_matter);
  std::string target = "unix:";
  for (const char letter : whole.native()) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || kPlain.find(letter) != std::string_view::npos)
      target += letter;
    else
      target += {'%', kHex[byte >> 4], kHex[byte & 15]};
  }
  return target;
}

std::shared_ptr<grpc::Channel> broker_channel(const std::filesystem::path& socket) {
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

}  // namespace gpumem
